"""Classes with operators over tensors: gaussians that are combined, poses, a tiny autodiff, a lazy expression."""
from __future__ import annotations

import functools
import math
import operator
from typing import Union

import torch
from torch import nn

import dietcode

D = 8


class Gaussian:
    """A diagonal Gaussian; `*` is the product of experts, `@` a linear map."""

    __slots__ = ("mean", "precision")

    def __init__(self, mean, precision):
        self.mean, self.precision = mean, precision

    @classmethod
    def standard(cls, d=D):
        return cls(torch.zeros(d), torch.ones(d))

    def __mul__(self, other):
        if isinstance(other, (int, float)):
            return Gaussian(self.mean * other, self.precision / other ** 2)
        precision = self.precision + other.precision
        return Gaussian((self.mean * self.precision + other.mean * other.precision) / precision, precision)

    __rmul__ = __mul__

    def __add__(self, other):
        return Gaussian(self.mean + other.mean, 1 / (1 / self.precision + 1 / other.precision))

    def __matmul__(self, linear):
        return Gaussian(linear(self.mean), self.precision)

    def __neg__(self):
        return Gaussian(-self.mean, self.precision)

    def __iter__(self):
        yield self.mean
        yield self.precision

    def __eq__(self, other):
        return isinstance(other, Gaussian) and all(torch.allclose(a, b) for a, b in zip(self, other))

    __hash__ = None

    def __bool__(self):
        return bool((self.precision > 0).all())

    def __len__(self):
        return self.mean.shape[0]

    def entropy(self):
        return 0.5 * (len(self) * (1 + math.log(2 * math.pi)) - self.precision.log().sum())


class Value:
    """micrograd over tensors."""

    def __init__(self, data, parents=(), backward=None):
        self.data, self.parents, self._backward = data, parents, backward
        self.grad = torch.zeros_like(data)

    def __add__(self, other):
        other = other if isinstance(other, Value) else Value(torch.full_like(self.data, other))
        out = Value(self.data + other.data, (self, other))

        def backward():
            self.grad += out.grad
            other.grad += out.grad

        out._backward = backward
        return out

    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(torch.full_like(self.data, other))
        out = Value(self.data * other.data, (self, other))

        def backward():
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad

        out._backward = backward
        return out

    def tanh(self):
        t = torch.tanh(self.data)
        out = Value(t, (self,))

        def backward():
            self.grad += (1 - t ** 2) * out.grad

        out._backward = backward
        return out

    def __radd__(self, other):
        return self + other

    def __rmul__(self, other):
        return self * other

    def __sub__(self, other):
        return self + (-1.0) * other

    def backward(self):
        order, seen = [], set()

        def visit(v):
            if id(v) not in seen:
                seen.add(id(v))
                for p in v.parents:
                    visit(p)
                order.append(v)

        visit(self)
        self.grad = torch.ones_like(self.data)
        for v in reversed(order):
            if v._backward is not None:
                v._backward()
        return len(order)


Expr = Union[str, tuple]
OPS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def evaluate(expr: Expr, env):
    if isinstance(expr, str):
        return env[expr]
    if isinstance(expr, (int, float)):
        return expr
    head, *args = expr
    if head == "tanh":
        return evaluate(args[0], env).tanh()
    return functools.reduce(OPS[head], (evaluate(a, env) for a in args))


torch.manual_seed(0)
observe, noise, transition = nn.Linear(4, D).eval(), nn.Linear(4, D).eval(), nn.Linear(D, D).eval()


@dietcode.program
def filtered(observations):
    belief, jumps = Gaussian.standard(), []
    for t, x in enumerate(observations):
        evidence = Gaussian(observe(x), torch.nn.functional.softplus(noise(x)))
        predicted = belief @ transition + Gaussian.standard()
        new = predicted * evidence
        if not new:
            raise ArithmeticError(t)
        if (new.mean - predicted.mean).norm() > 1.0:
            jumps.append(t)
            new = 0.5 * new
        belief = new
    return belief, belief == Gaussian.standard(), jumps, belief.entropy()


@dietcode.program
def gradients(expr: Expr, env):
    values = {name: Value(x) for name, x in env.items()}
    out = evaluate(expr, values)
    count = out.backward()
    return out.data, {name: v.grad for name, v in values.items()}, count


def sequences(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [list(2 * torch.randn(n, 4, generator=g)) for n in lengths]


EXPRESSIONS = ["x", ("+", "x", "y"), ("*", "x", ("tanh", "y")), ("-", ("*", "x", "x"), ("tanh", ("+", "y", "x", 2)), "z"), ("tanh", ("tanh", ("*", "x", "y", "z"))), ("+", "x", ("*", 3, "x")), ("*", "q", "x")]


def expressions(seed, chosen, d=D):
    g = torch.Generator().manual_seed(seed)
    return [(e, {name: torch.randn(d, generator=g) for name in "xyz"}) for e in chosen]


PROGRAMS = [
    (filtered, lambda: sequences(0, [1, 2, 4, 5]), lambda: sequences(1, [3, 9, 0])),
    (gradients, lambda: expressions(2, EXPRESSIONS[:4]), lambda: expressions(3, EXPRESSIONS) + expressions(4, EXPRESSIONS[1:3], 5)),
]
