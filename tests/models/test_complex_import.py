"""Complex numbers and Fourier transforms within models, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import assert_functions, exported, imported, torch

from dietcode.errors import ModelError

F = torch.nn.functional
L = torch.export.Dim("L", min=1, max=16)
Function = Callable[..., Any]


def _signals(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return (torch.randn(size, 6, 8),)


def _turned(x: Any) -> Any:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))
    angles = torch.outer(torch.arange(6.0), torch.arange(4.0) / 3)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)


def _quotients(x: Any) -> Any:
    one, other = torch.complex(x[:, :3], x[:, 3:]), torch.complex(x[:, 3:].abs() + 1, x[:, :3])
    found = one / other + (one - 2.0) * 1j - other.conj() / 4
    return found.real, found.imag, torch.angle(found), torch.exp(found).abs()


FUNCTIONS: list[Function] = [
    lambda x: torch.view_as_real(torch.fft.rfft(x)),
    lambda x: torch.fft.rfft(x, dim=1, norm="ortho").abs(),
    lambda x: torch.fft.fft(torch.fft.fft(x), dim=1, norm="forward").real,
    lambda x: torch.view_as_real(torch.fft.ifft(torch.fft.rfft(x, n=11))),
    lambda x: torch.fft.irfft(torch.fft.rfft(x, n=16) * torch.fft.rfft(x[0], n=16), n=16)[..., :8],
    lambda x: torch.fft.irfft(torch.fft.rfft(x)[..., :4], n=7),
    lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho"), s=(6, 8), norm="ortho"),
    lambda x: torch.stft(x.flatten(1), 16, 4, window=torch.hann_window(16), return_complex=True).abs() ** 2,
    lambda x: torch.matmul(torch.fft.rfft(x), torch.fft.rfft(x).transpose(1, 2)).imag,
    _turned,
    _quotients,
]


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_transforms_and_arithmetic(number: int) -> None:
    assert_functions([FUNCTIONS[number]], _signals, [{0: L}], (1, 2, 5))


class _Turned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(16, 4), torch.rand(16, 4)))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))
        return torch.view_as_real(pairs * self.turns[: x.shape[1]])


def test_a_complex_buffer_is_two_weights() -> None:
    program = exported(_Turned(), (torch.randn(2, 5, 8),), ({1: L},))
    graph, weights = imported(program)
    assert sorted(graph.weights) == sorted(weights) == ["turns.imag", "turns.real"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.fft.rfft(x[0, 0]), "an output of complex numbers; allowed: real ones"),
        (lambda x: torch.fft.rfft(x, dim=0).abs(), "over x_0; allowed: constant extents up to 2048"),
        (lambda x: torch.fft.rfft(x).sin().abs(), "aten.sin.default: complex numbers; allowed: FFTs, sums"),
    ],
)
def test_what_is_refused(function: Function, words: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(ModelError) as caught:
        imported(exported(Module(), _signals(5), ({0: torch.export.Dim("L", min=2, max=16)},)))
    assert words in str(caught.value)


def test_a_complex_input_is_refused() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.real

    with pytest.raises(ModelError, match=r"x: dtype complex64; allowed: within a model; give and return"):
        imported(exported(Module(), (torch.randn(3, dtype=torch.complex64),)))
