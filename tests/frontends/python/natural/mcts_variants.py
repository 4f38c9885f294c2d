"""MCTS as in MuZero, with normalized values, a transposition table, dirichlet noise by seed, and UCT over tic-tac-toe."""
import functools
import math

import numpy as np
import torch
import torch.nn as nn

import dietcode

A, H = 3, 16


class MinMaxStats:
    def __init__(self):
        self.maximum, self.minimum = -float("inf"), float("inf")

    def update(self, value):
        self.maximum, self.minimum = max(self.maximum, value), min(self.minimum, value)

    def normalize(self, value):
        if self.maximum > self.minimum:
            return (value - self.minimum) / (self.maximum - self.minimum)
        return value


class Node:
    def __init__(self, prior):
        self.visit_count, self.prior, self.value_sum = 0, prior, 0
        self.children, self.hidden_state, self.reward = {}, None, 0

    def expanded(self):
        return bool(self.children)

    def value(self):
        return 0 if self.visit_count == 0 else self.value_sum / self.visit_count

    def expand(self, reward, hidden_state, policy_logits):
        self.reward, self.hidden_state = reward, hidden_state
        policy = {a: math.exp(p) for a, p in enumerate(policy_logits)}
        total = sum(policy.values())
        for action, p in policy.items():
            self.children[action] = Node(p / total)

    def add_noise(self, rng, fraction=0.25):
        noise = rng.dirichlet([0.3] * len(self.children))
        for a, n in zip(self.children, noise):
            self.children[a].prior = self.children[a].prior * (1 - fraction) + n * fraction


class MuZero(nn.Module):
    def __init__(self):
        super().__init__()
        self.represent = nn.Sequential(nn.Linear(H, H), nn.Tanh())
        self.dynamics = nn.GRUCell(A, H)
        self.reward, self.prediction = nn.Linear(H, 1), nn.Linear(H, A + 1)

    def initial_inference(self, observation):
        h = self.represent(observation)
        out = self.prediction(h)
        return out[-1].item(), 0, out[:A].tolist(), h

    def recurrent_inference(self, h, action):
        h = self.dynamics(torch.eye(A)[action], h)
        out = self.prediction(h)
        return out[-1].item(), self.reward(h).item(), out[:A].tolist(), h


torch.manual_seed(0)
muzero = MuZero().eval()
board_net = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)).eval()


def ucb_score(parent, child, stats, discount=0.97):
    pb_c = math.log((parent.visit_count + 19652 + 1) / 19652) + 1.25
    pb_c *= math.sqrt(parent.visit_count) / (child.visit_count + 1)
    value = stats.normalize(child.reward + discount * child.value()) if child.visit_count else 0
    return pb_c * child.prior + value


@dietcode.program
def plan(observation, seed=None, simulations=10):
    root, stats = Node(0), MinMaxStats()
    value, reward, logits, hidden = muzero.initial_inference(observation)
    root.expand(reward, hidden, logits)
    if seed is not None:
        root.add_noise(np.random.default_rng(seed))
    max_depth = 0
    for _ in range(simulations):
        node, path, actions = root, [root], []
        while node.expanded():
            action, node = max(node.children.items(), key=lambda item: (ucb_score(path[-1], item[1], stats), item[0]))
            actions.append(action)
            path.append(node)
        value, reward, logits, hidden = muzero.recurrent_inference(path[-2].hidden_state, actions[-1])
        node.expand(reward, hidden, logits)
        for n in reversed(path):
            n.value_sum += value
            n.visit_count += 1
            stats.update(n.reward + 0.97 * n.value())
            value = n.reward + 0.97 * value
        max_depth = max(max_depth, len(path) - 1)
    visits = np.array([root.children[a].visit_count for a in sorted(root.children)])
    return visits / visits.sum(), root.value(), max_depth


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class Board(tuple):
    """Nine of 1, -1 and 0; the first player is to move where as many of both are there."""

    @property
    def player(self):
        return 1 if sum(self) == 0 else -1

    @property
    def winner(self):
        return next((self[a] for a, b, c in LINES if self[a] and self[a] == self[b] == self[c]), 0)

    def moves(self):
        return [] if self.winner else [k for k, v in enumerate(self) if v == 0]

    def play(self, k):
        return Board(self[:k] + (self.player,) + self[k + 1:])


@dietcode.program
def best_move(cells, simulations=12):
    evaluations = 0

    @functools.cache
    def evaluate(board):
        nonlocal evaluations
        evaluations += 1
        out = board_net(torch.tensor([float(v * board.player) for v in board]))
        legal = board.moves()
        return torch.tanh(out[9]).item(), dict(zip(legal, torch.softmax(out[legal], 0).tolist()))

    N, W = {}, {}

    def simulate(board):
        if board.winner:
            return -1.0
        if not board.moves():
            return 0.0
        value, priors = evaluate(board)
        if board not in N:
            N[board], W[board] = dict.fromkeys(priors, 0), dict.fromkeys(priors, 0.0)
            return value
        total = math.sqrt(1 + sum(N[board].values()))
        k = max(priors, key=lambda m: W[board][m] / max(1, N[board][m]) + 1.4 * priors[m] * total / (1 + N[board][m]))
        v = -simulate(board.play(k))
        N[board][k] += 1
        W[board][k] += v
        return v

    root = Board(cells)
    for _ in range(simulations):
        simulate(root)
    counts = N.get(root, {})
    return max(counts, key=counts.get, default=None), counts, evaluations


def observations(seed, n):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(H, generator=g) for _ in range(n)]


BOARDS = [
    [0] * 9,
    [1, 0, 0, 0, -1, 0, 0, 0, 0],
    [1, -1, 0, 0, 1, 0, 0, -1, 0],
    [1, -1, 1, 1, -1, 0, 0, 0, 0],
    [1, 1, 1, -1, -1, 0, 0, 0, 0],
    [1, -1, 1, 1, -1, -1, -1, 1, 1],
    [0, 0, 0, 0, 1, 0, 0, 0, 0],
]
PROGRAMS = [
    (plan, lambda: observations(0, 5), lambda: [*observations(1, 2), *((o, k) for k, o in enumerate(observations(2, 2))), (observations(3, 1)[0], None, 1)]),
    (best_move, lambda: BOARDS[:4], lambda: BOARDS),
]
