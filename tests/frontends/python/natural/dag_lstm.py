"""DAG-LSTM and DAG networks for boolean circuits: topological order, shared nodes computed once."""
import random
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

import torch
import torch.nn as nn

import dietcode

D = 12
OPS = ("and", "or", "not", "xor")


class Circuit:
    """Gates by name; an input gate is a number, others are (op, *names)."""

    def __init__(self, gates, output):
        self.gates, self.output = gates, output

    def __getitem__(self, name):
        return self.gates[name]

    def __contains__(self, name):
        return name in self.gates

    def __iter__(self):
        return iter(self.gates)


class DagLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(1, 2 * D)
        self.kinds = nn.Embedding(len(OPS), D)
        self.iou = nn.Linear(2 * D, 3 * D)
        self.forget = nn.Linear(2 * D, D)
        self.readout = nn.Linear(D, 1)

    def gate(self, op, parents):
        x = self.kinds(torch.tensor(OPS.index(op)))
        h = torch.stack([p[0] for p in parents]).max(dim=0)[0]
        i, o, u = self.iou(torch.cat([x, h])).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        for h_p, c_p in parents:
            c += torch.sigmoid(self.forget(torch.cat([x, h_p]))) * c_p
        return torch.sigmoid(o) * torch.tanh(c), c

    def leaf(self, value):
        return torch.tanh(self.inputs(torch.tensor([float(value)]))).chunk(2)


torch.manual_seed(0)
net = DagLSTM().eval()


@dietcode.program
def bottom_up(circuit):
    sorter = TopologicalSorter({name: gate[1:] for name in circuit if isinstance(gate := circuit[name], tuple)})
    states = {}
    try:
        order = list(sorter.static_order())
    except CycleError as error:
        return f"cycle of {len(error.args[1]) - 1} gates"
    for name in order or [circuit.output]:
        if name not in circuit:
            raise KeyError(f"no gate {name}")
        gate = circuit[name]
        if isinstance(gate, tuple):
            op, *parents = gate
            states[name] = net.gate(op, [states[p] for p in parents])
        else:
            states[name] = net.leaf(gate)
    probability = torch.sigmoid(net.readout(states[circuit.output][0])).item()
    return probability, probability > 0.5, len(states)


@dietcode.program
@torch.no_grad()
def top_down(circuit):
    calls = 0

    @lru_cache(maxsize=None)
    def state(name):
        nonlocal calls
        calls += 1
        gate = circuit[name]
        if not isinstance(gate, tuple):
            return net.leaf(gate)
        return net.gate(gate[0], [state(p) for p in gate[1:]])

    h, c = state(circuit.output)
    return h, calls, state.cache_info().hits


def circuits(seed, sizes):
    r = random.Random(seed)
    out = []
    for n in sizes:
        gates = {"x0": r.randint(0, 1), "x1": r.randint(0, 1)}
        for k in range(n):
            op = r.choice(OPS)
            gates[f"g{k}"] = (op, *(r.choice(list(gates)) for _ in range(1 if op == "not" else r.choice((2, 2, 3)))))
        out.append(Circuit(gates, list(gates)[-1]))
    return out


def broken():
    return [
        Circuit({"a": ("and", "b", "c"), "b": ("not", "a"), "c": 1}, "a"),
        Circuit({"a": ("or", "b", "zz"), "b": 1}, "a"),
        Circuit({"a": 1}, "a"),
    ]


PROGRAMS = [
    (bottom_up, lambda: circuits(0, [1, 2, 4, 6, 8]), lambda: circuits(1, [3, 12]) + broken()),
    (top_down, lambda: circuits(2, [1, 2, 4, 6, 8]), lambda: circuits(3, [3, 12]) + broken()[1:]),
]
