"""Handles pass as tensors: what needs no value does not wait, all else is as PyTorch has it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hand_machine import A_ROW, EMBED_CALL, LATE, MADE, ROW, SCORE, WIDTH, E, begun, machine, row_of, site

from dietcode.runtime.recorded.counts import EagerCounts
from dietcode.runtime.recorded.fibers import Scheduler
from dietcode.runtime.recorded.handles import install, is_instance, real, tensor_of
from dietcode.runtime.recorder import Run

install()
install()
MACHINE = machine()
embed = site(MACHINE, EMBED_CALL).call
scores = [site(MACHINE, [1, *A_ROW, 1, SCORE, 1, 0, 1, 0, dtype]).call for dtype in range(4)]
rows = [site(MACHINE, [1, *A_ROW, 1, LATE, 1, 0, 1, 0, dtype]).call for dtype in range(4)]
again = site(MACHINE, [1, MADE, ROW, 2, 1, WIDTH, 1, LATE, 1, 0, 1, 0, 2]).call
X = torch.tensor([1.0, 2.0, -3.0, 4.0])
DTYPES = torch.float32, torch.bool, torch.int64, torch.int32


@pytest.fixture(autouse=True)
def run() -> Iterator[Run]:
    with begun(MACHINE) as made, torch.no_grad():
        yield made


def made(code: int = 0, *, scalar: bool = False) -> tuple[Any, torch.Tensor]:
    """A handle and what it stands for."""
    if scalar:
        return scores[code](X), X.sum().to(DTYPES[code])
    return rows[code](X), (X + 1).to(DTYPES[code])


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize(
    "ask",
    [
        lambda x: (x.shape, x.size(), x.dim(), x.ndim, x.numel(), x.stride(), x.nelement()),
        lambda x: (x.dtype, x.device, x.layout, x.element_size(), x.is_floating_point(), x.is_contiguous()),
        lambda x: (x.requires_grad, x.grad, x.grad_fn, x.is_leaf),
        lambda x: (is_instance(x, torch.Tensor), is_instance(x, (int, torch.Tensor)), is_instance(x, tuple)),
        lambda x: (torch.is_floating_point(x), torch.numel(x)),
        lambda x: len(x) if x.dim() else x.size(),
        lambda x: (hasattr(x, "text"), hasattr(x, "shape"), hash(x) == hash(x), x is not None),
        lambda x: x.detach().shape,
    ],
)
def test_what_the_type_says_does_not_wait(
    run: Run, code: int, scalar: bool, ask: Callable[[Any], Any]
) -> None:
    handle, right = made(code, scalar=scalar)
    assert ask(handle) == ask(right) and not handle.computed and run.num_pending == 1


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize(
    "ask", [bool, float, int, operator.methodcaller("item"), operator.methodcaller("tolist"), operator.index]
)
def test_numbers_need_no_tensor(code: int, ask: Callable[[Any], Any]) -> None:
    handle, right = made(code, scalar=True)
    found = [_outcome(ask, one) for one in (handle, right)]
    assert found[0] == found[1] and type(found[0]) is type(found[1])
    assert handle.tensor is None or (ask is operator.index and code == 0)


def _function(source: str) -> Callable[[Any], Any]:
    """A function of x, whose expression is the name of its case."""
    found: Callable[[Any], Any] = eval(f"lambda x: {source}")
    return found


def _outcome(function: Callable[..., Any], *given: Any) -> Any:
    """What a function gives, as plain Python; or its error."""
    try:
        return _plain(function(*given))
    except Exception as error:
        return type(error), str(error)


def _plain(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.dtype, found.tolist(), found.requires_grad
    if isinstance(found, np.ndarray):
        return found.dtype, found.tolist()
    return type(found)(map(_plain, found)) if type(found) in (tuple, list) else found


OTHER = torch.tensor([2.0, 1.0, 0.5, -1.0])


_ASKED = """
bool(x)
float(x)
int(x)
operator.index(x)
len(x)
list(x)
repr(x)
str(x)
abs(x)
operator.neg(x)
operator.invert(x)
np.asarray(x)
sum(x)
x.item()
x.tolist()
f'{x.sum():.3f}'
x.sum().item()
x + 1
1 + x
x - OTHER
OTHER - x
x @ OTHER
x * x
2 ** x
x / 2
x // 2
x % 2
x & 1
x == OTHER
x < 2
x is x
x != None
3.0 in x
x[0]
x[1:3]
x[[0, 2]]
x[None]
x[-1].item()
torch.stack([x, x])
torch.cat((OTHER, x))
torch.where(x > 1, x, OTHER)
torch.nn.functional.relu(x)
torch.softmax(x.float(), 0)
x.T
x.mT
x.view(2, 2)
x.unbind()
x.argmax()
x.max(0)
x.numpy()
x.to(torch.float64)
x.clone()
x.contiguous()
x.float()
torch.add(OTHER, other=x)
torch.einsum('i,i->', x.float(), OTHER)
x.data
[float(one) for one in x]
torch.equal(x, x)
np.float32(2) * x
OTHER[x.long() % 4]
OTHER.index_add(0, torch.tensor([0] * 4), x.float())
torch.tensor([float(x[0]), 1.0])
torch.zeros(int(x[1]))
max(x[0], x[1])
pickle.loads(pickle.dumps(x))
copy.copy(x)
copy.deepcopy(x)
copy.deepcopy([x, x])[1]
torch.nn.Linear(4, 2, bias=False)(x).shape
x.nothing
x.sum(7)
reversed(x)
{x: 1}[x]
math.floor(x[0])
x.new_zeros(2)
torch.zeros_like(x)
torch.tensor(x)
torch.as_tensor(x)
torch.tensor([x[0], x[1]])
np.exp(x)
divmod(x, 2)
round(x)
complex(x)
OTHER.copy_(x)
OTHER[x[1].long()]
OTHER[x.abs().long() % 4]
isinstance(x + 1, torch.Tensor)
torch.full((2,), x[0].item())
any(x)
all(x)
sorted(x)
"""


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("source", _ASKED.split("\n")[1:-1])
@pytest.mark.filterwarnings("ignore")
def test_everything_else_is_as_pytorch_has_it(code: int, source: str) -> None:
    ask = _function(source)
    torch.manual_seed(0)
    handle, right = made(code)
    kept = OTHER.clone()
    first = _outcome(ask, handle)
    OTHER.copy_(kept)
    assert first == _outcome(ask, right)
    OTHER.copy_(kept)
    assert handle.type_number == ROW


_IN_C = """
OTHER[x]
OTHER[x, None]
torch.tensor(x)
torch.as_tensor(x)
torch.tensor([x, 1])
OTHER.new_tensor(x)
torch.zeros(x)
torch.full((2,), x)
OTHER[x:]
OTHER[0:x]
OTHER.view(x, -1)
torch.zeros(2, x)
setattr(torch.zeros(()), 'data', x)
torch.utils.data.default_collate([x, x])
isinstance(x, torch.Tensor) and torch.is_tensor(x) and (x.__class__ is torch.Tensor)
isinstance(x, torch.nn.Parameter | int | tuple)
range(5)[x]
np.zeros(5)[x]
np.array([x, x])
torch.nn.ParameterList([torch.nn.Parameter(OTHER)])[x].shape
"""


@pytest.mark.parametrize("source", _IN_C.split("\n")[1:-1])
@pytest.mark.parametrize("code", range(4))
@pytest.mark.filterwarnings("ignore")
def test_c_code_that_takes_a_handle_for_a_tensor(source: str, code: int) -> None:
    """It asks nobody: the handle is made into a tensor when its class is looked at."""
    one = site(MACHINE, [1, *A_ROW, 1, SCORE, 1, 0, 1, 0, code]).call
    right = torch.tensor(2.0).to(DTYPES[code])
    found = [_outcome(_function(source), one) for one in (one(torch.tensor([1.0, 1, 0, 0])), right)]
    assert found[0] == found[1]


_IN_PLACE = """
operator.iadd(x, 1)
operator.setitem(x, 0, 7.0)
operator.setitem(x, slice(1, 3), x[0])
x.add_(OTHER)
x.mul_(x).sub_(1)
torch.add(OTHER, 1, out=x)
x.copy_(OTHER)
x.numpy().fill(3)
x.view(2, 2).zero_()
x.data.mul_(2)
setattr(x, 'data', OTHER.clone())
torch.nn.init.ones_(x)
OTHER.clone().add_(x)
"""


@pytest.mark.parametrize(
    ("code", "source"),
    # Of whole numbers all but data of another dtype.
    [(c, one) for c in (0, 2) for one in _IN_PLACE.split("\n")[1:-1] if not c or "setattr" not in one],
)
def test_in_place_changes_are_seen_by_all_who_have_the_handle(run: Run, source: str, code: int) -> None:
    """Also by blocks; those that were noted before have the values of before."""
    change = _function(source)
    handle, right = made(code)
    same, use = handle, again if code else rows[0]
    before = use(handle)
    found, wanted = (_outcome(lambda x: change(x) is x, one) for one in (handle, right))
    assert found == wanted
    after = use(same)
    run.flush()
    np.testing.assert_array_equal(row_of(before), (X + 2).numpy())
    if wanted[0] is not RuntimeError if isinstance(wanted, tuple) else True:
        np.testing.assert_array_equal(row_of(after), right.numpy().astype(np.float32) + 1)
    assert same.tolist() == right.tolist()


def test_attributes_of_users_and_real_values() -> None:
    handle, right = made()
    handle.text = "mine"
    assert handle.text == "mine" and tensor_of(handle).text == "mine"
    found = real({"a": (handle, [handle, 1])})
    assert type(found["a"][0]) is torch.Tensor and found["a"][1][0] is found["a"][0] is tensor_of(handle)
    assert torch.equal(found["a"][0], right)
    with pytest.raises(AttributeError, match="other"):
        _ = handle.other


def test_eager_operators_are_counted_by_line(run: Run) -> None:
    counts = EagerCounts()

    def instance(n: int) -> Any:
        row = embed(n)
        torch.nn.functional.relu(row) + 1  # counted once: the sum is of a plain tensor
        return row * 2, row.shape, float(row[0])

    found = Scheduler(run, instance, [(1,), (2,)], counts).results()
    assert [torch.equal(one[0], torch.from_numpy(E[n] * 2)) for n, one in enumerate(found, 1)] == [True, True]
    first = instance.__code__.co_firstlineno
    named = {(one.line - first, one.operator): count for one, count in counts.items()}
    assert named == {(2, "relu"): 2, (3, "__mul__"): 2, (3, "__getitem__"): 2}
    assert {one.file for one in counts} == {__file__}


def test_a_handle_of_a_call_that_is_over() -> None:
    with begun(MACHINE):
        kept, lost = embed(1), embed(2)
        tensor_of(kept)
    assert torch.equal(kept + 0, torch.from_numpy(E[1])) and kept.shape == (WIDTH,)
    with pytest.raises(RuntimeError, match="over"):
        tensor_of(lost)


@pytest.mark.parametrize(
    "compare", [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
)
@pytest.mark.parametrize(
    "other", [4, 3, 5, 2**70, True, 4.0, "4", None, torch.tensor(4), torch.tensor([3, 5])]
)
def test_comparisons(compare: Callable[[Any, Any], Any], other: Any) -> None:
    """Also those with a whole number, which Python makes: each answer is a tensor of its own."""
    for code in range(4):
        handle, right = made(code, scalar=True)
        for one, two in ((handle, right), (tensor_of(made(code, scalar=True)[0]), right)):
            for swapped in (False, True):
                expected = _answer(compare, two, other, swapped)
                found = _answer(compare, one, other, swapped)
                assert type(found) is type(expected) and repr(found) == repr(expected)
    handle, _ = made(2, scalar=True)
    first = handle == 4
    first.logical_not_()
    assert bool(handle == 4) and not first and made(2)[0].shape == (made(2)[0] == 4).shape


def _answer(compare: Callable[[Any, Any], Any], one: Any, other: Any, swapped: bool) -> Any:
    try:
        return compare(other, one) if swapped else compare(one, other)
    except (TypeError, RuntimeError, OverflowError) as error:
        return type(error)
