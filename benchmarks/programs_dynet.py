"""The programs of `benchmarks.programs` in DyNet with automatic batching, with the weights of the examples.

A graph is made anew for each call, as users do; where a value steers what comes next, all instances are
asked together, so that DyNet can batch what they have noted. DyNet batches products that share the nodes of
their weight and their bias, and never constants and reshapes: so biases are added once, a call has one node
of zeros, and a table has words' matrices as they are multiplied.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from dietcode.programs.module import Program

Call = Callable[[], list[Any]]


class Weights:
    """The modules of an example as parameters of DyNet's."""

    def __init__(self, program: Program) -> None:
        import dynet

        self.dynet, self._parameters = dynet, dynet.ParameterCollection()
        self.modules = modules_of(program.function)

    def linear(self, module: Any, *names: str) -> list[Any]:
        """Return weights by their names, or those of a linear layer."""
        named = dict(module.named_parameters())
        return self.parameters(*(named[name] for name in names or ("bias", "weight")))

    def parameters(self, *values: Any) -> list[Any]:
        """Return tensors as parameters."""
        return [self._parameters.parameters_from_numpy(one.detach().numpy()) for one in values]

    def table(self, module: Any) -> Any:
        """Return the rows of an embedding."""
        return self._parameters.lookup_parameters_from_numpy(module.weight.detach().numpy())

    def matrices(self, module: Any, hidden: int) -> Any:
        """Return the rows of an embedding as matrices; `lookup_parameters_from_numpy` transposes them."""
        rows = module.weight.detach().view(-1, hidden, hidden).transpose(1, 2)
        return self._parameters.lookup_parameters_from_numpy(rows.numpy())


def modules_of(function: Any, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a function and those that it calls close over, by name."""
    found = {} if found is None else found
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in found:
            found[name] = one = cell.cell_contents
            inner = getattr(one, "function", one)
            if hasattr(inner, "__code__"):
                modules_of(inner, found)
    return found


def _arrays(dynet: Any, results: Sequence[Any]) -> list[Any]:
    dynet.forward(list(results))
    return [one.npvalue() for one in results]


def _tree_lstm(program: Program, instances: Sequence[Any]) -> Call:
    own = Weights(program)
    dy, leaf, cell = own.dynet, own.modules["leaf"], own.modules["cell"]
    words, gates = own.table(leaf.embedding), own.linear(leaf.gates)
    left_bias, left, right = own.linear(cell, "left.bias", "left.weight", "right.weight")
    hidden = leaf.gates.in_features

    def node(tree: Any) -> tuple[Any, Any]:
        if tree.left is None:
            parts = dy.affine_transform([*gates, dy.lookup(words, tree.word)])
            i, o, u = (dy.pick_range(parts, k * hidden, (k + 1) * hidden) for k in range(3))
            c = dy.cmult(dy.logistic(i), dy.tanh(u))
            return dy.cmult(dy.logistic(o), dy.tanh(c)), c
        (h, c), (other, other_c) = node(tree.left), node(tree.right)
        parts = dy.affine_transform([left_bias, left, h, right, other])
        i, f, g, o, u = (dy.pick_range(parts, k * hidden, (k + 1) * hidden) for k in range(5))
        kept = dy.cmult(dy.logistic(f), c) + dy.cmult(dy.logistic(g), other_c)
        c = dy.cmult(dy.logistic(i), dy.tanh(u)) + kept
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c

    def call() -> list[Any]:
        own.dynet.renew_cg()  # it keeps the weights
        return _arrays(dy, [node(one)[0] for one in instances])

    return call


def _mv_rnn(program: Program, instances: Sequence[Any]) -> Call:
    own = Weights(program)
    dy, leaf, join = own.dynet, own.modules["leaf"], own.modules["join"]
    vectors, matrices = own.table(leaf.vectors), own.matrices(leaf.matrices, leaf.hidden)
    of_vector, (of_matrix,) = own.linear(join.vector), own.linear(join.matrix, "weight")

    def node(phrase: Any) -> tuple[Any, Any]:
        if phrase.left is None:
            return dy.lookup(vectors, phrase.word), dy.lookup(matrices, phrase.word)
        (a, a_matrix), (b, b_matrix) = node(phrase.left), node(phrase.right)
        both = dy.concatenate([b_matrix * a, a_matrix * b])
        vector = dy.tanh(dy.affine_transform([*of_vector, both]))
        return vector, of_matrix * dy.concatenate([a_matrix, b_matrix])

    def call() -> list[Any]:
        own.dynet.renew_cg()  # it keeps the weights
        return _arrays(dy, [node(one)[0] for one in instances])

    return call


def _nested_rnn(program: Program, instances: Sequence[Any]) -> Call:
    own = Weights(program)
    dy, modules = own.dynet, own.modules
    words, inner, outer = (
        own.table(modules["embedding"]),
        _gru(own, modules["inner"]),
        _rnn(own, modules["outer"]),
    )
    hidden = modules["outer"].hidden_size

    def sentence(text: Sequence[int], state: Any) -> Any:
        for word in text:
            state = inner(dy.lookup(words, word), state)
        return state

    def read(text: Sequence[Sequence[int]], start: Any) -> Any:
        state = start
        for one in [sentence(own, start) for own in text]:
            state = outer(one, state)
        return state

    def call() -> list[Any]:
        own.dynet.renew_cg()  # it keeps the weights
        start = dy.zeros(hidden)
        return _arrays(dy, [read(one, start) for one in instances])

    return call


def _rnn(own: Weights, module: Any) -> Callable[[Any, Any], Any]:
    dy = own.dynet
    of_x, of_h, bias = own.parameters(module.weight_ih, module.weight_hh, module.bias_ih + module.bias_hh)
    return lambda x, h: dy.tanh(dy.affine_transform([bias, of_x, x, of_h, h]))


def _birnn(program: Program, instances: Sequence[Any]) -> Call:
    own = Weights(program)
    dy, modules = own.dynet, own.modules
    words, scores = own.table(modules["embedding"]), own.linear(modules["scores"])
    forth, back = _rnn(own, modules["forth"]), _rnn(own, modules["back"])
    hidden = modules["forth"].hidden_size

    def states(cell: Callable[[Any, Any], Any], sentence: Sequence[int], state: Any) -> list[Any]:
        found = []
        for word in sentence:
            state = cell(dy.lookup(words, word), state)
            found.append(state)
        return found

    def call() -> list[Any]:
        own.dynet.renew_cg()  # it keeps the weights
        start, found = dy.zeros(hidden), []
        for one in instances:
            both = zip(states(forth, one, start), states(back, one[::-1], start)[::-1], strict=True)
            found += [dy.rectify(dy.affine_transform([*scores, dy.concatenate([a, b])])) for a, b in both]
        return _arrays(dy, found)

    return call


def _stack_rnn(program: Program, instances: Sequence[Any]) -> Call:
    own = Weights(program)
    dy, modules = own.dynet, own.modules
    words = own.table(modules["embedding"])
    score, merge = own.linear(modules["score"]), own.linear(modules["merge"])
    shift, push = _rnn(own, modules["buffer_cell"]), _rnn(own, modules["stack_cell"])
    hidden = modules["merge"].out_features

    def parse(sentence: Sequence[int], start: Any) -> Any:
        """Yield scores, and get their values back; returns the state."""
        state = start
        buffer, items, stack = [start], [], [start]
        for word in reversed(sentence):
            state = shift(dy.lookup(words, word), state)
            buffer.append(state)
        while len(buffer) > 1 or len(items) > 1:
            scores = yield dy.affine_transform([*score, dy.concatenate([stack[-1], buffer[-1]])])
            if len(items) < 2 or (len(buffer) > 1 and scores.argmax() == 0):
                item = buffer.pop()
            else:
                second, first = items.pop(), items.pop()
                del stack[-2:]
                item = dy.tanh(dy.affine_transform([*merge, dy.concatenate([first, second])]))
            items.append(item)
            stack.append(push(item, stack[-1]))
        return items[0]

    def call() -> list[Any]:
        own.dynet.renew_cg()  # it keeps the weights
        start, results = dy.zeros(hidden), [None] * len(instances)
        parsers = (parse(one, start) for one in instances)
        _driven(dy, [(one, partial(results.__setitem__, at)) for at, one in enumerate(parsers)])
        return _arrays(dy, results)

    return call


def _driven(dy: Any, running: list[tuple[Any, Callable[[Any], Any]]]) -> None:
    """Run generators that yield vectors and are sent their values.

    Parameters
    ----------
    dy : module
    running : list of (generator, callable)
        The callable takes what the generator returns, and may return further ones.
    """
    answers: list[Any] = [None] * len(running)
    while running:
        asked, scores = [], []
        for (one, end), answer in zip(running, answers, strict=True):
            waiting = [(one, end, answer)]
            while waiting:
                generator, ended, given = waiting.pop()
                try:
                    scores.append(generator.send(given))
                    asked.append((generator, ended))
                except StopIteration as stop:
                    waiting += [(*new, None) for new in ended(stop.value) or ()]
        running = asked
        answers = _arrays(dy, scores) if scores else []


def _gru(own: Weights, module: Any) -> Callable[[Any, Any], Any]:
    dy, hidden = own.dynet, module.hidden_size
    gates, new = slice(0, 2 * hidden), slice(2 * hidden, None)
    of_x, of_h, bias_x, bias_h = module.weight_ih, module.weight_hh, module.bias_ih, module.bias_hh
    bias, gates_of_x, gates_of_h = own.parameters(bias_x[gates] + bias_h[gates], of_x[gates], of_h[gates])
    new_of_x, new_of_h = own.parameters(bias_x[new], of_x[new]), own.parameters(bias_h[new], of_h[new])

    def cell(x: Any, h: Any) -> Any:
        both = dy.logistic(dy.affine_transform([bias, gates_of_x, x, gates_of_h, h]))
        reset, update = dy.pick_range(both, 0, hidden), dy.pick_range(both, hidden, 2 * hidden)
        kept = dy.cmult(reset, dy.affine_transform([*new_of_h, h]))
        state = dy.tanh(dy.affine_transform([*new_of_x, x]) + kept)
        return state + dy.cmult(update, h - state)

    return cell


def _drnn(program: Program, instances: Sequence[Any], deepest: int = 5, most: int = 3) -> Call:
    own = Weights(program)
    dy, modules = own.dynet, own.modules
    down, along, decide = (
        _gru(own, modules["down"]),
        _gru(own, modules["along"]),
        own.linear(modules["decide"]),
    )
    hidden = modules["down"].hidden_size

    def grow(above: Any, before: Any, depth: int, zeros: Any) -> Any:
        """Yield whether a node has one more child; returns the state and the states of the children."""
        state = dy.tanh(down(above, before) + along(before, above))
        sibling, states = zeros, []
        while depth < deepest and len(states) < most:
            score = yield dy.affine_transform([*decide, state + sibling])
            if not score.item() > 0:
                break
            sibling = along(state, sibling)
            states.append(sibling)
        return state, states

    def call() -> list[Any]:
        own.dynet.renew_cg()  # it keeps the weights
        zeros = dy.zeros(hidden)

        def begun(above: Any, before: Any, depth: int, made: SimpleNamespace) -> Any:
            def end(found: tuple[Any, list[Any]]) -> list[Any]:
                made.state, states = found
                made.children = [SimpleNamespace() for _ in states]
                parts = zip(states, made.children, strict=True)
                return [begun(made.state, one, depth + 1, child) for one, child in parts]

            return grow(above, before, depth, zeros), end

        roots = [SimpleNamespace() for _ in instances]
        pairs = zip(instances, roots, strict=True)
        _driven(dy, [begun(dy.inputTensor(x.numpy()), zeros, 0, root) for x, root in pairs])
        return _arrays(dy, [state for root in roots for state in _states(root)])

    return call


def _states(made: SimpleNamespace) -> list[Any]:
    return [*(state for child in made.children for state in _states(child)), made.state]


PROGRAMS: dict[str, Callable[[Program, Sequence[Any]], Call]] = {
    "tree_lstm": _tree_lstm,
    "mv_rnn": _mv_rnn,
    "nested_rnn": _nested_rnn,
    "birnn": _birnn,
    "drnn": _drnn,
    "stack_rnn": _stack_rnn,
}


def calls_in_dynet(name: str, program: Program, instances: Sequence[Any]) -> dict[str, Call]:
    """Return the call in DyNet; nothing where it is not installed, or has no such program."""
    if importlib.util.find_spec("dynet_config") is None or name not in PROGRAMS:
        return {}
    if "_dynet" not in sys.modules:
        import dynet_config

        dynet_config.set(mem=2048, autobatch=1)
    return {"dynet": PROGRAMS[name](program, instances)}
