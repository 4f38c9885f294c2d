"""Sums of products by indices, of ONNX: operands are put together two by two, as matrices."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.onnx.context import OnnxImporter, OnnxNode, OnnxResult, onnx_rule


@onnx_rule("Einsum")
def _einsum(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return a sum of products of tensors."""
    text = n.attribute("equation").replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:  # what occurs once, in the order of letters, after all that dots stand for
        once = [letter for letter in sorted(set(inputs)) if letter.isalpha() and inputs.count(letter) == 1]
        output = "..." * ("..." in inputs) + "".join(once)
    tensors = [n.tensor(k) for k in range(len(n.values))]
    letters = "".join((*terms, output)).replace("...", "")
    fits = letters.isalpha() or not letters
    if len(terms) != len(tensors) or not fits or not set(output) <= set(inputs):
        raise GraphError(f"equation {text!r}; allowed: indices of each operand, as bij,bjk->bik")
    if "..." in text:
        terms, output = _without_dots(m, text, tensors, terms, output)
    ranks_fit = all(len(term) == m.rank(one) for term, one in zip(terms, tensors, strict=True))
    if len(set(output)) != len(output) or not ranks_fit:
        raise GraphError(f"equation {text!r}; allowed: an index for each axis, once in the result")
    pairs = [_diagonal(m, tensor, term) for tensor, term in zip(tensors, terms, strict=True)]
    extents = _extents(m, pairs)
    pairs = [_without_ones(m, *pair, extents) for pair in pairs]
    tensors, terms = [tensor for tensor, _ in pairs], [term for _, term in pairs]
    found, own = tensors[0], terms[0]
    for k in range(1, len(terms)):
        later = {*output, *(index for term in terms[k + 1 :] for index in term)}
        found, own = _of_two(m, (found, tensors[k]), (own, terms[k]), later, extents)
    found, own = _summed(m, found, own, output)
    return m.transpose(found, [own.index(index) for index in output])


def _without_dots(
    m: OnnxImporter, text: str, tensors: Sequence[str], terms: Sequence[str], output: str
) -> tuple[list[str], str]:
    """Return the indices of the operands and of the result with letters in the place of dots."""
    counts = [
        m.rank(tensor) - len(term.replace("...", "")) if "..." in term else 0
        for tensor, term in zip(tensors, terms, strict=True)
    ]
    free = [letter for letter in string.ascii_letters if letter not in text]
    if min(counts) < 0 or max(counts) > len(free):
        raise GraphError(f"equation {text!r}; allowed: an index for each axis")
    dots = "".join(free[: max(counts)])
    named = [
        term.replace("...", dots[len(dots) - count :]) for term, count in zip(terms, counts, strict=True)
    ]
    return named, output.replace("...", dots)


def _extents(m: OnnxImporter, pairs: Sequence[tuple[str, str]]) -> dict[str, Extent]:
    """Return the extent of each index, which is 1 where it is 1 in all tensors."""
    found: dict[str, Extent] = {}
    for tensor, term in pairs:
        for index, extent in zip(term, m.type(tensor).shape, strict=True):
            other = found.get(index, ONE)
            if ONE not in (other, extent) and other != extent:
                raise GraphError(f"index {index} is {other} and {extent}; allowed: equal, or 1")
            found[index] = extent if other == ONE else other
    return found


def _without_ones(m: OnnxImporter, tensor: str, term: str, extents: Mapping[str, Extent]) -> tuple[str, str]:
    """Return a tensor without axes of 1 where another has more: what lacks an index is broadcast."""
    shape = m.type(tensor).shape
    kept = [axis for axis, extent in enumerate(shape) if extent != ONE or extents[term[axis]] == ONE]
    return m.reshape(tensor, [shape[axis] for axis in kept]), "".join(term[axis] for axis in kept)


def _diagonal(m: OnnxImporter, tensor: str, term: str) -> tuple[str, str]:
    """Return a tensor each of whose indices occurs once: positions where those that occur twice are equal."""
    for index in dict.fromkeys(term):
        axes = [axis for axis, one in enumerate(term) if one == index]
        if len(axes) > 1:
            others = [axis for axis in range(len(term)) if axis not in axes]
            if len({m.type(tensor).shape[axis] for axis in axes}) > 1:
                raise GraphError(f"index {index} twice in {m.type(tensor)}; allowed: of axes as long")
            own = m.add("arange", stop=m.type(tensor).shape[axes[0]])
            tensor = m.add("take_points", m.transpose(tensor, [*axes, *others]), *[own] * len(axes))
            term = index + "".join(term[axis] for axis in others)
    return tensor, term


def _summed(m: OnnxImporter, tensor: str, own: str, kept: Iterable[str]) -> tuple[str, str]:
    """Return a tensor without the indices that nothing needs, which are summed over."""
    gone = [index for index in own if index not in set(kept)]
    if not gone:
        return tensor, own
    total = m.add("sum", tensor, axes=tuple(own.index(index) for index in gone))
    return total, "".join(index for index in own if index not in gone)


def _of_two(
    m: OnnxImporter,
    tensors: Sequence[str],
    terms: Sequence[str],
    needed: set[str],
    extents: Mapping[str, Extent],
) -> tuple[str, str]:
    """Return the product of two tensors, summed over what nothing needs any more, and its indices.

    Parameters
    ----------
    m : OnnxImporter
    tensors, terms : sequence of str
        Of two operands each.
    needed : set of str
        The indices that the output or later operands have.
    extents : mapping of str to Extent
        Of each index.
    """
    reduced = [
        _summed(m, tensors[k], terms[k], needed | set(terms[1 - k])) for k in (0, 1)
    ]  # what one operand alone has is summed first
    (_, first), (_, second) = reduced
    batch = [i for i in first if i in second and i in needed]
    inner = [i for i in first if i in second and i not in needed]
    rows, columns = ([i for i in one if i not in other] for one, other in ((first, second), (second, first)))
    found = [*batch, *rows, *columns]
    if not inner:  # nothing to sum: a product of elements
        sides = [_broadcast(m, *one, found, extents) for one in reduced]
        return m.add("mul", *sides), "".join(found)

    def matrix(k: int, order: Sequence[list[str]]) -> str:
        tensor, own = reduced[k]
        turned = m.transpose(tensor, [own.index(i) for i in (*batch, *order[0], *order[1])])
        sizes = [_product(extents[i] for i in group) for group in order]
        return m.reshape(turned, [*(extents[i] for i in batch), *sizes])

    product = m.add("matmul", matrix(0, [rows, inner]), matrix(1, [inner, columns]))
    return m.reshape(product, [extents[i] for i in found]), "".join(found)


def _broadcast(
    m: OnnxImporter, tensor: str, own: str, found: Sequence[str], extents: Mapping[str, Extent]
) -> str:
    """Return a tensor with its indices in an order of more, of which those that it lacks have extent 1."""
    there = [index for index in found if index in own]
    turned = m.transpose(tensor, [own.index(index) for index in there])
    return m.reshape(turned, [extents[index] if index in own else ONE for index in found])


def _product(extents: Iterable[Extent]) -> Extent:
    total = ONE
    for one in extents:
        total = total * one
    return total
