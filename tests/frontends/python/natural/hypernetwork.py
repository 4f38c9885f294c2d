"""Hypernetworks: weights of a small network come out of another (Ha et al. 2016); MAML-like fast weights; HyperRNN."""
import math
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

Z, IN, HID, OUT = 6, 5, 8, 3


class HyperNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.shapes = OrderedDict([("w1", (HID, IN)), ("b1", (HID,)), ("w2", (OUT, HID)), ("b2", (OUT,))])
        self.trunk = nn.Sequential(nn.Linear(Z, 16), nn.Tanh())
        self.generators = nn.ModuleDict({k: nn.Linear(16, math.prod(s)) for k, s in self.shapes.items()})

    def generate(self, z):
        e = self.trunk(z)
        return {name: self.generators[name](e).view(*shape) for name, shape in self.shapes.items()}

    @staticmethod
    def target(params, x):
        h = F.relu(F.linear(x, params["w1"], params["b1"]))
        return F.linear(h, params["w2"], params["b2"])

    def forward(self, z, points, steps=2, lr=0.1):
        """Fast weights are corrected by the error of each labelled point."""
        params = self.generate(z)
        predictions = []
        for x, label in points:
            y = self.target(params, x)
            predictions.append(int(y.argmax()))
            if label is None:
                continue
            for _ in range(steps):
                y = self.target(params, x)
                if y.argmax() == label:
                    break
                error = F.softmax(y, dim=0)
                error[label] -= 1
                hidden = F.relu(F.linear(x, params["w1"], params["b1"]))
                params["w2"] = params["w2"] - lr * torch.outer(error, hidden)
                params["b2"] -= lr * error
        return predictions, params


class HyperRNN(nn.Module):
    """A small LSTM scales the rows of the main RNN's matrices at each step."""

    def __init__(self, hyper=4):
        super().__init__()
        self.hyper = nn.LSTMCell(IN + HID, hyper)
        self.scale_x, self.scale_h, self.bias = nn.Linear(hyper, HID), nn.Linear(hyper, HID), nn.Linear(hyper, HID)
        self.wx = nn.Parameter(torch.randn(HID, IN) / IN ** 0.5)
        self.wh = nn.Parameter(torch.randn(HID, HID) / HID ** 0.5)

    def forward(self, xs):
        h, state = torch.zeros(HID), None
        for x in xs:
            state = self.hyper(torch.cat([x, h]), state)
            z = state[0]
            h = torch.tanh(self.scale_x(z) * (self.wx @ x) + self.scale_h(z) * self.wh.mv(h) + self.bias(z))
        return h


torch.manual_seed(0)
hyper, rnn = HyperNet().eval(), HyperRNN().eval()


def tasks(seed, sizes):
    g = torch.Generator().manual_seed(seed)
    out = []
    for n in sizes:
        labels = torch.randint(-1, OUT, (n,), generator=g).tolist()
        points = [(torch.randn(IN, generator=g), None if k < 0 else k) for k in labels]
        out.append((torch.randn(Z, generator=g), points))
    return out


def sequences(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [list(torch.randn(n, IN, generator=g)) for n in lengths]


PROGRAMS = [
    (dietcode.program(hyper), lambda: tasks(0, [1, 2, 4, 6]), lambda: [*tasks(1, [3, 9, 0]), (*tasks(2, [4])[0], 5, 0.5)]),
    (dietcode.program(rnn), lambda: sequences(3, [1, 2, 4]), lambda: sequences(4, [7, 0])),
]
