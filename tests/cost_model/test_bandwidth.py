"""What moving bytes costs beyond the caches, from the copies of a calibration."""

from __future__ import annotations

import numpy as np
import pytest

from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.measure.formats.cpu import CPU

COPIES = {
    "bytes": [65536, 1 << 20, 1 << 24, 1 << 26],
    "bytes_per_sec": [4e10, 1e11, 8e10, 2e10],
    "streamed_bytes_per_sec": [1e10, 3e10, 3e10, 3e10],
}
CALIBRATION = {
    "kappa": 0.9,
    "num_tiles": [1, 2],
    "tile_gflops": [50.0, 99.0],
    "reference_secs": 1e-3,
    "bandwidth": COPIES,
}


def test_nothing_is_lost_within_the_caches_and_more_and_more_beyond() -> None:
    bandwidth = Bandwidth.of(CALIBRATION)
    sizes = np.array([1e3, 65536.0, 1 << 20, 1 << 24, 1 << 25, 1 << 26, 1 << 28])
    secs = bandwidth.excess_secs(sizes)
    assert secs[:3].tolist() == [0, 0, 0]  # a small copy is slow by its launch
    assert secs[3] == pytest.approx((1 << 24) * (1 / 8e10 - 1 / 1e11))
    assert bandwidth.rate(sizes)[4] == pytest.approx(4e10)  # between 8e10 and 2e10
    assert np.all(np.diff(secs[2:]) > 0)
    assert secs[6] == pytest.approx(4 * secs[5])  # as slow as the largest copy


def test_streamed_copies_have_rates_of_their_own() -> None:
    assert Bandwidth.of(CALIBRATION, streamed=True).rates[0] == 1e10
    plain = {name: value for name, value in COPIES.items() if name != "streamed_bytes_per_sec"}
    assert Bandwidth.of({"bandwidth": plain}, streamed=True) == Bandwidth.of({"bandwidth": plain})


@pytest.mark.parametrize("calibration", [None, {}, {"bandwidth": {}}])
def test_a_calibration_without_copies_is_a_usual_machine(calibration: dict[str, object] | None) -> None:
    bandwidth = Bandwidth.of(calibration)
    assert bandwidth.excess_secs(np.array([1e6]))[0] == 0 < bandwidth.excess_secs(np.array([1e8]))[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bytes": []}, "ascending, one at least"),
        ({"bytes": [2, 1, 3, 4]}, "ascending, one at least"),
        ({"bytes_per_sec": [1.0]}, "1 of bytes_per_sec for 4 bytes; allowed: as many"),
        ({"streamed_bytes_per_sec": [1.0, 2.0]}, "2 of streamed_bytes_per_sec for 4 bytes"),
        ({"bytes_per_sec": [1.0, 1.0, 1.0, 0.0]}, "bytes_per_sec"),
    ],
)
def test_copies_in_records_are_checked(changes: dict[str, object], said: str) -> None:
    CPU.calibration(CALIBRATION)
    with pytest.raises(ValueError, match=said):
        CPU.calibration(CALIBRATION | {"bandwidth": COPIES | changes})
