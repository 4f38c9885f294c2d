"""What programs are measured beside where a person could batch by hand: PyTorch, and a recursion.

What depends on structure alone, as indices of levels and the order of sequences, is prepared ahead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.program_recursion import arrays_of_trees
from benchmarks.programs_dynet import modules_of
from benchmarks.recursion_by_level import BY_LEVEL, Levels, packed, plain
from dietcode.programs.module import Program
from dietcode.runtime.opening import load
from dietcode.runtime.recursion.structure import Structure

Call = Callable[[], list[Any]]
_CLEAR = 0.62  # as examples/programs/early_exit.py has it


def calls_by_hand(name: str, program: Program, instances: Sequence[Any]) -> dict[str, Call]:
    """Return what computes the same in PyTorch, batched by hand; nothing where nobody would."""
    if name == "early_exit":
        layers = inspect.getclosurevars(program.function).nonlocals["layers"]
        return _early_exit(modules_of(program.function), instances, layers)
    made = {"tree_lstm": _tree_lstm, "birnn": _birnn, "mv_rnn": _mv_rnn}.get(name)
    return {} if made is None else made(modules_of(program.function), instances)


def _tree_lstm(modules: dict[str, Any], trees: Sequence[Any]) -> dict[str, Call]:
    leaf, cell = modules["leaf"], modules["cell"]
    children, words = arrays_of_trees(trees)
    levels = Levels(Structure(children), 2)
    given = torch.from_numpy(words).long()
    hidden = leaf.embedding.weight.shape[1]
    joined = torch.cat([cell.left.weight, cell.right.weight], 1).detach()

    def by_level(product: Any) -> Call:
        of_word = product(leaf.gates.weight.detach(), leaf.gates.bias.detach())
        of_children = product(joined, cell.left.bias.detach())

        def run() -> list[Any]:
            h, c = levels.table(hidden), levels.table(hidden)
            first = levels.num_leaves
            vectors = leaf.embedding.weight.index_select(0, given[levels.order[:first]])
            i, o, u = of_word(vectors).chunk(3, 1)
            c[:first] = torch.sigmoid(i) * torch.tanh(u)
            h[:first] = torch.sigmoid(o) * torch.tanh(c[:first])
            for begin, end, places in levels:
                rows = h.index_select(0, places.t().reshape(-1)).view(end - begin, 2 * hidden)
                i, f, g, o, u = of_children(rows).chunk(5, 1)
                left, right = c.index_select(0, places[0]), c.index_select(0, places[1])
                c[begin:end] = (
                    torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * left + torch.sigmoid(g) * right
                )
                h[begin:end] = torch.sigmoid(o) * torch.tanh(c[begin:end])
            return list(h.index_select(0, levels.roots).unbind(0))

        return torch.inference_mode()(run)

    return {"by_hand": by_level(plain), "by_hand_packed": by_level(packed)}


def _mv_rnn(modules: dict[str, Any], phrases: Sequence[Any]) -> dict[str, Call]:
    leaf, join = modules["leaf"], modules["join"]
    children, words = arrays_of_trees(phrases)
    levels, given = Levels(Structure(children), 2), torch.from_numpy(words).long()
    weights = {
        **{"vectors": leaf.vectors.weight, "leaf_matrices": leaf.matrices.weight},
        **{"join": join.vector.weight, "join_bias": join.vector.bias, "matrices": join.matrix.weight},
    }
    weights = {name: one.detach() for name, one in weights.items()}

    def by_level(product: Any) -> Call:
        run = BY_LEVEL["mv-rnn"](weights, levels, product)
        return torch.inference_mode()(lambda: list(run(given)[0].unbind(0)))

    return {"by_hand": by_level(plain), "by_hand_packed": by_level(packed)}


def _birnn(modules: dict[str, Any], sentences: Sequence[Any]) -> dict[str, Call]:
    hidden = modules["embedding"].weight.shape[1]
    both = torch.nn.RNN(hidden, hidden, bidirectional=True).eval()
    with torch.no_grad():
        for cell, end in ((modules["forth"], ""), (modules["back"], "_reverse")):
            for word in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(both, f"{word}_l0{end}").copy_(getattr(cell, word))
    lengths = torch.tensor([len(one) for one in sentences])
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(one) for one in sentences])
    steps = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, enforce_sorted=False)

    def run() -> list[Any]:
        rows = modules["embedding"](steps.data)
        states, _ = both(
            torch.nn.utils.rnn.PackedSequence(
                rows, steps.batch_sizes, steps.sorted_indices, steps.unsorted_indices
            )
        )
        scores: Tensor = torch.relu(modules["scores"](states.data))
        own, _ = torch.nn.utils.rnn.pad_packed_sequence(states._replace(data=scores), batch_first=True)
        return [list(one[:many].unbind(0)) for one, many in zip(own, lengths.tolist(), strict=True)]

    return {"by_hand": torch.inference_mode()(run)}


def _early_exit(modules: dict[str, Any], instances: Sequence[Tensor], layers: int) -> dict[str, Call]:
    """All instances go through a layer together; those that are clear leave the batch behind it."""
    layer, classes = modules["layer"], modules["classes"]
    given = torch.stack(list(instances))
    count, length, width = given.shape

    def batched(product: Any) -> Call:
        qkv, out, up, down, scores = (
            product(one.weight.detach(), one.bias.detach())
            for one in (layer.qkv, layer.out, layer.up, layer.down, classes)
        )

        def one_layer(x: Tensor) -> Tensor:  # [rows of all instances, width]
            heads = (-1, length, layer.heads, width // layer.heads)
            q, k, v = (one.reshape(heads).transpose(1, 2) for one in qkv(x).chunk(3, 1))
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = layer.first(x + out(attended.transpose(1, 2).reshape(-1, width)))
            return layer.second(x + down(torch.relu(up(x))))  # type: ignore[no-any-return]

        def run() -> list[Any]:
            found: list[Any] = [None] * count
            inside, x = torch.arange(count), given.reshape(-1, width)
            for number in range(layers):
                x = one_layer(x)
                chances = torch.softmax(scores(x.view(-1, length, width)[:, 0]), 1)
                is_clear = chances.max(1).values > _CLEAR
                if number == layers - 1:
                    is_clear = torch.ones_like(is_clear)
                if is_clear.any():
                    for at, own in zip(inside[is_clear].tolist(), chances[is_clear].unbind(0), strict=True):
                        found[at] = (own, number + 1)
                    inside, x = inside[~is_clear], x.view(-1, length, width)[~is_clear].view(-1, width)
                if not len(inside):
                    break
            return found

        return torch.inference_mode()(run)

    return {"by_hand": batched(plain), "by_hand_packed": batched(packed)}


def calls_of_recursion(folder: Path, trees: Sequence[Any], threads: int) -> dict[str, Call]:
    """Return the same model as a recursion: given a structure that is prepared, and given the trees."""
    if not folder.exists():
        return {}
    model = load(folder, num_threads=threads)
    children, words = arrays_of_trees(trees)
    structure = Structure(children)

    def from_trees() -> list[Any]:
        own, ids = arrays_of_trees(trees)
        return list(model(Structure(own), ids)[0])

    return {"recursion": lambda: list(model(structure, words)[0]), "recursion_of_trees": from_trees}
