"""Variables of Python around tensor code: closures, defaults, globals, locals(), eval, classes within functions, targets of assignments."""
import torch
from torch import nn

import dietcode

torch.manual_seed(0)
W, V, cell = nn.Linear(4, 4).eval(), nn.Linear(4, 1).eval(), nn.GRUCell(4, 4).eval()
layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)).eval()


def two_targets(xs):
    n = len(xs)
    chart = [[None] * n for _ in range(n)]
    best, splits = -1e9, [[-1] * n for _ in range(n)]
    for i in range(n):
        own = torch.tanh(W(xs[i]))
        if V(own).item() > -9:
            chart[0][i], splits[0][i] = own, i
    return chart[0][n - 1], splits


def targets_of_two_kinds(xs):
    n = len(xs)
    chart = [[None] * n for _ in range(n)]
    for i in range(n):
        chart[0][i], k = torch.tanh(W(xs[i])), i
    return chart[0][n - 1], k


def view_of_what_changes(x):
    y = torch.tanh(x)
    first = y[0]
    y += x
    return first


def shape_by_values(x):
    h = W(x)
    return h[h > 0].shape


def picked(x):
    h = W(x)
    return [v.item() for v in h if v > 0][:2], h.topk(2).indices.tolist(), range(4)[h.argmin()]


def sizes_by_number(pair):
    x, k = pair
    return W(x).topk(k).values




def state_in_closure(xs):
    h = torch.zeros(4)
    step = lambda x: cell(x, h)
    for x in xs:
        h = step(x)
    return h


def module_in_closure(x):
    def apply(z):
        return torch.tanh(layer(z))
    for layer in layers:
        x = apply(x)
    return x


def number_in_closure(pair):
    x, scale = pair
    scaled = lambda z: W(z) * scale
    y = scaled(x)
    scale = scale + 1.0
    return y, scaled(x)


def number_as_default(pair):
    x, k = pair
    pick = lambda z, scale=k: W(z) * scale
    return pick(x)


class Config: scale = 1.0

config = Config()


def number_in_object(pair):
    x, k = pair
    config.scale = k
    def apply(z): return W(z) * config.scale
    return apply(x)


def counter(x):
    total = 0
    def add(z):
        nonlocal total
        total += 1
        return W(z) * total
    for _ in range(3): x = add(x)
    return x

SCALE = 1.0


def global_number(pair):
    global SCALE
    x, SCALE = pair
    return scaled(x), scaled(x + 1)


def scaled(z): return W(z) * SCALE


def global_number_here(pair):
    global SCALE
    x, SCALE = pair
    y = W(x) * SCALE
    SCALE += 1
    return y, W(y) * SCALE


def make(k):
    def apply(z): return W(z) * k
    return apply


def made_functions(pair):
    x, k = pair
    f, g = make(k), make(k + 1)
    return g(f(x))


def evaluated(x):
    h = W(x)
    g = torch.tanh(h) * 2
    return eval("g + h")


def names_of_locals(x):
    h = W(x)
    g = torch.tanh(h) * 2
    return sorted(locals())


def gradient(x):
    with torch.enable_grad():
        z = x.clone().requires_grad_()
        loss = (W(z) ** 2).sum()
        (g,) = torch.autograd.grad(loss, z)
    return g


def deleted(x):
    h = W(x)
    del x
    y = torch.tanh(h)
    for _ in range(2):
        y = y + h
    else:
        h = None
    return y, h


def caught(x):
    try:
        y = torch.tanh(W(x))
        z = y @ torch.ones(3)
    except RuntimeError as e:
        return y, str(e)
    return z


def unpacked(x):
    y = z = torch.tanh(W(x))
    z = z + 1
    (a, b), *c = y.split(2)[0], y, z
    return a, b, c


def class_within(x):
    class Box:
        h = torch.tanh(W(x))
        def __init__(self): self.y = W(self.h)
    return Box().y


def late_binding(x):
    y = torch.tanh(W(x))
    def later():
        return y * 2
    y = y + 1
    return later()


def walrus(x):
    y = W(x)
    if (s := y.sum()) > 0 and (t := torch.tanh(y)).max() > 0:
        return s, t
    return s


def rows(seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(4, generator=g) for _ in range(6)]


def lists(seed):
    return [rows(seed)[:n] for n in (1, 2, 4)]


def counted(seed):
    return [(x, k + 1) for k, x in enumerate(rows(seed))]


def scaled_rows(seed):
    return [(x, seed + k % 2 + 0.5) for k, x in enumerate(rows(seed))]


INSTANCES = {
    two_targets: lists,
    targets_of_two_kinds: lists,
    view_of_what_changes: rows,
    shape_by_values: rows,
    picked: rows,
    sizes_by_number: counted,
    state_in_closure: lists,
    module_in_closure: rows,
    number_in_closure: scaled_rows,
    number_as_default: scaled_rows,
    number_in_object: scaled_rows,
    counter: rows,
    global_number: scaled_rows,
    global_number_here: scaled_rows,
    made_functions: scaled_rows,
    evaluated: rows,
    names_of_locals: rows,
    gradient: rows,
    deleted: rows,
    caught: rows,
    unpacked: rows,
    class_within: rows,
    late_binding: rows,
    walrus: rows,
}
PROGRAMS = [(dietcode.program(f), lambda make=make: make(0), lambda make=make: make(1)) for f, make in INSTANCES.items()]
