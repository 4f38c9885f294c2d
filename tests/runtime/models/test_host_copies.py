"""Copies of values whose elements do not lie one after the other, in every order of axes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dietcode.runtime.models.copies import copy_array


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_every_order_of_axes_is_copied(channels: int, dtype: str) -> None:
    rng = np.random.default_rng(channels)
    given = rng.integers(0, 2, (2, channels, 40, 70)).astype(dtype)
    for axes in itertools.permutations(range(4)):
        for source in (
            given.transpose(axes),
            given[:, :, ::-1].transpose(axes),
            given[..., ::2].transpose(axes),
        ):
            out = np.empty(source.shape, dtype)
            copy_array(out, source)
            assert np.array_equal(out, source)


def test_a_value_of_one_axis_or_none_is_copied() -> None:
    for source in (np.arange(10000)[::2], np.float32(3)):
        out = np.empty(np.shape(source), np.asarray(source).dtype)
        copy_array(out, np.asarray(source))
        assert np.array_equal(out, source)
