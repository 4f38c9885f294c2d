"""Game trees with a value network: alpha-beta with move ordering and a killer table, expectimax, and TD(lambda) returns; Connect-three."""
import itertools
import math
from functools import total_ordering

import torch
from torch import nn

import dietcode

COLUMNS, ROWS = 4, 3


class Position:
    __slots__ = ("columns", "player")

    def __init__(self, columns=((),) * COLUMNS, player=1):
        self.columns, self.player = columns, player

    @classmethod
    def from_moves(cls, moves):
        p = cls()
        for m in moves:
            p = p.drop(int(m))
        return p

    def legal(self):
        return [] if self.won() else [c for c in range(COLUMNS) if len(self.columns[c]) < ROWS]

    def drop(self, c):
        if not 0 <= c < COLUMNS or len(self.columns[c]) == ROWS:
            raise IndexError(f"column {c}")
        columns = list(self.columns)
        columns[c] += (self.player,)
        return Position(tuple(columns), -self.player)

    def at(self, c, r):
        return self.columns[c][r] if 0 <= c < COLUMNS and 0 <= r < len(self.columns[c]) else 0

    def won(self):
        who = -self.player
        for c, r, (dc, dr) in itertools.product(range(COLUMNS), range(ROWS), ((1, 0), (0, 1), (1, 1), (1, -1))):
            if all(self.at(c + k * dc, r + k * dr) == who for k in range(3)):
                return True
        return False

    def tensor(self):
        x = torch.zeros(2, COLUMNS, ROWS)
        for c in range(COLUMNS):
            for r, v in enumerate(self.columns[c]):
                x[0 if v == self.player else 1, c, r] = 1
        return x

    def __hash__(self):
        return hash((self.columns, self.player))

    def __eq__(self, other):
        return self.columns == other.columns and self.player == other.player

    def __str__(self):
        return "/".join("".join("ox"[v > 0] for v in c) for c in self.columns)


@total_ordering
class Line:
    def __init__(self, value, moves):
        self.value, self.moves = value, moves

    def __neg__(self):
        return Line(-self.value, self.moves)

    def __lt__(self, other):
        return self.value < other.value

    def __eq__(self, other):
        return self.value == other.value

    def __repr__(self):
        return f"Line({self.value:.2f}, {self.moves})"


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 2)
        self.fc = nn.Linear(4 * (COLUMNS - 1) * (ROWS - 1), 1)

    def forward(self, x):
        return torch.tanh(self.fc(torch.relu(self.conv(x.unsqueeze(0))).flatten(1))).squeeze()


torch.manual_seed(0)
net = ValueNet().eval()


@dietcode.program
def alpha_beta(moves: str, depth: int = 2):
    table, killers = {}, {}
    visited = 0

    def evaluate(p):
        if p not in table:
            table[p] = net(p.tensor()).item()
        return table[p]

    def search(p, depth, alpha, beta, ply=0):
        nonlocal visited
        visited += 1
        if p.won():
            return Line(-10.0 + ply, [])
        legal = p.legal()
        if not legal:
            return Line(0.0, [])
        if depth == 0:
            return Line(evaluate(p), [])
        best = Line(-math.inf, [])
        for c in sorted(legal, key=lambda c: (c != killers.get(ply), abs(c - 1.5))):
            line = -search(p.drop(c), depth - 1, -beta, -alpha, ply + 1)
            if line > best:
                best = Line(line.value, [c, *line.moves])
            alpha = max(alpha, best.value)
            if alpha >= beta:
                killers[ply] = c
                break
        return best

    root = Position.from_moves(moves)
    line = search(root, depth, -math.inf, math.inf)
    return str(root), line, visited, len(table)


@dietcode.program
def expectimax(moves, depth=2):
    """The other player moves by chance; values stay tensors."""
    def value(p, depth, mine):
        if p.won():
            return torch.tensor(-1.0 if mine else 1.0)
        legal = p.legal()
        if not legal or depth == 0:
            v = net(p.tensor())
            return v if mine else -v
        values = [value(p.drop(c), depth - 1, not mine) for c in legal]
        return torch.stack(values).max() if mine else torch.stack(values).mean()

    return value(Position.from_moves(moves), depth, True)


@dietcode.program
def td_lambda(games, lam=0.8):
    returns, errors = [], torch.zeros(0)
    for moves in games:
        positions = [Position.from_moves(moves[:k]) for k in range(len(moves) + 1)]
        values = [net(p.tensor()) for p in positions]
        outcome = -1.0 if positions[-1].won() else 0.0
        g = torch.tensor(outcome)
        for v in reversed(values[:-1]):
            g = -(lam * g + (1 - lam) * v)
            returns.append(g)
        errors = torch.cat([errors, torch.stack([r - v for r, v in zip(returns[-len(values) + 1:], reversed(values[:-1]))])]) if len(values) > 1 else errors
    return returns, errors.pow(2).sum(), max(returns, key=float, default=None)


PROGRAMS = [
    (alpha_beta, lambda: ["", "0", "01", "0123", "1122"], lambda: ["012", "001122", ("11", 3), "0000", "010101"]),
    (expectimax, lambda: ["", "12", "0123"], lambda: ["1", "01010", ("3", 1)]),
    (td_lambda, lambda: [["01"], ["0", "12"], ["0101"]], lambda: [["010201"], [], ["", "2"]]),
]
