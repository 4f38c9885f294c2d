"""Sums of products by indices, of ONNX: operands are put together two by two, as matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.onnx.context import OnnxImporter, OnnxNode, OnnxResult, onnx_rule


@onnx_rule("Einsum")
def _einsum(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return a sum of products of tensors, none of whose indices occurs twice in one of them."""
    text = n.attribute("equation").replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    plain = arrow and text.replace(",", "").replace("->", "").isalpha()
    once = all(len(set(one)) == len(one) for one in (*terms, output))
    if not plain or not once or len(terms) != len(n.values) or not set(output) <= set(inputs):
        raise GraphError(f"equation {text!r}; allowed: each index once in each operand, as bij,bjk->bik")
    tensors = [n.tensor(k) for k in range(len(terms))]
    extents = {
        index: extent
        for term, one in zip(terms, tensors, strict=True)
        for index, extent in zip(term, m.type(one).shape, strict=True)
    }
    found, own = tensors[0], terms[0]
    for k in range(1, len(terms)):
        later = {*output, *(index for term in terms[k + 1 :] for index in term)}
        found, own = _of_two(m, (found, tensors[k]), (own, terms[k]), later, extents)
    found, own = _summed(m, found, own, output)
    return m.transpose(found, [own.index(index) for index in output])


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
