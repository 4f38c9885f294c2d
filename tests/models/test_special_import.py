"""Functions of statistics: imported graphs beside float64, and beside eager PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from graph_runs import Functions, assert_functions, exported, imported, run_graph, torch
from kernel_runs import lowered, model_of

L = torch.export.Dim("L", min=1, max=4096)


def _both(function: Any, x: Any) -> tuple[Any, Any]:
    """Return what the host's functions give, and what kernels do."""
    graph, weights = imported(exported(Functions([function]), (x[:9],), (({0: L},),)))
    (host,) = run_graph(graph, weights, {next(iter(graph.inputs)): x.numpy()})
    (kernels,) = model_of(lowered(graph), weights)(x)
    return host, np.asarray(kernels)


def test_logarithms_of_gamma() -> None:
    """Within 3e-6 of 1 or of the result, as near zeros, at halves and below 0."""
    x = torch.cat([torch.linspace(-6.9, 8, 3001), torch.tensor([1.0, 2.0, 0.5, 1e-30, 40.0, 1e6, 3e30])])
    wanted = np.array([math.lgamma(one) for one in x.tolist()])
    for found in _both(torch.lgamma, x):
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)


def test_logarithms_of_gamma_at_poles_and_beyond() -> None:
    x = torch.tensor([0.0, -1.0, -2.0, -7.0, math.inf, math.nan])
    for found in _both(torch.lgamma, x):
        np.testing.assert_array_equal(found, torch.lgamma(x))


def test_logarithms_of_gamma_keep_digits_at_their_zeros() -> None:
    x = torch.tensor([1.001, 0.999, 1.9999, 2.0001, 2.02])
    wanted = np.array([math.lgamma(one) for one in x.tolist()])
    for found in _both(torch.lgamma, x):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_inverse_of_the_error_function() -> None:
    x = torch.cat([torch.linspace(-0.99999, 0.99999, 2001), torch.tensor([1e-20, 0.9999999, 1.0, -1.0, 0.0])])
    wanted = torch.erfinv(x.double()).numpy()
    for found in _both(torch.erfinv, x):
        np.testing.assert_allclose(found, wanted, rtol=2e-6)
    for found in _both(torch.erfinv, torch.tensor([1.5, -2.0, math.nan])):
        assert np.isnan(found).all()


def _tensors(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return torch.rand(size) * 0.98 + 0.01, torch.randint(0, 30, (size,)).float()


def test_distributions() -> None:
    """Likelihoods of counts, quantiles, and softplus that is steeper, as distributions have them."""
    Normal, Poisson = torch.distributions.Normal, torch.distributions.Poisson
    assert_functions(
        [
            lambda p, k: Normal(0.5, 2.0, validate_args=False).icdf(p),
            lambda p, k: Poisson(p * 9, validate_args=False).log_prob(k),
            lambda p, k: torch.distributions.Beta(p, k + 1, validate_args=False).log_prob(p),
            lambda p, k: torch.nn.functional.softplus(p * 30 - 15, beta=2.5),
        ],
        _tensors,
        [{0: L}, {0: L}],
    )
