"""SPINN (Bowman et al. 2016): a shift-reduce Tree-LSTM with a tracking LSTM that predicts transitions."""
import logging
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

log = logging.getLogger("spinn")
SHIFT, REDUCE = 0, 1
D, V = 16, 40


class Reducer(nn.Module):
    def __init__(self, size, tracker_size):
        super().__init__()
        self.left = nn.Linear(size, 5 * size)
        self.right = nn.Linear(size, 5 * size, bias=False)
        self.track = nn.Linear(tracker_size, 5 * size, bias=False)

    def forward(self, left, right, tracking):
        (h1, c1), (h2, c2) = left, right
        lstm_in = self.left(h1)
        lstm_in += self.right(h2)
        lstm_in += self.track(tracking)
        a, i, f1, f2, o = lstm_in.chunk(5, -1)
        c = a.tanh() * i.sigmoid() + f1.sigmoid() * c1 + f2.sigmoid() * c2
        h = o.sigmoid() * c.tanh()
        return h, c


class Tracker(nn.Module):
    def __init__(self, size, tracker_size, predict=True):
        super().__init__()
        self.rnn = nn.LSTMCell(3 * size, tracker_size)
        self.transition = nn.Linear(tracker_size, 2) if predict else None
        self.state_size = tracker_size
        self.reset_state()

    def reset_state(self):
        self.state = None

    def forward(self, buf, stack):
        if self.state is None:
            self.state = 2 * (torch.zeros(self.state_size),)
        tracker_in = torch.cat([buf[-1][0], stack[-1][0], stack[-2][0]])
        self.state = self.rnn(tracker_in, self.state)
        return self.state, self.transition(self.state[0])


class SPINN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.project = nn.Linear(D, 2 * D)
        self.reduce = Reducer(D, 8)
        self.tracker_size = 8
        self.tracker = nn.LSTMCell(3 * D, 8)
        self.transition = nn.Linear(8, 2)
        self.drop = nn.Dropout(0.2)

    def forward(self, tokens, transitions=None):
        zero = (torch.zeros(D), torch.zeros(D))
        buffers = [zero] + [self.project(self.drop(self.embed(torch.tensor(t)))).chunk(2) for t in reversed(tokens)]
        stack = [zero, zero]
        tracking = (torch.zeros(self.tracker_size), torch.zeros(self.tracker_size))
        taken, loss = [], 0.0
        num_transitions = 2 * len(tokens) - 1
        for t in range(num_transitions):
            tracking = self.tracker(torch.cat([buffers[-1][0], stack[-1][0], stack[-2][0]]), tracking)
            logits = self.transition(tracking[0])
            if transitions is not None:
                action = transitions[t]
                loss += F.cross_entropy(logits.unsqueeze(0), torch.tensor([action])).item()
            else:
                action = int(logits.argmax())
                if len(buffers) == 1:
                    action = REDUCE
                elif len(stack) < 4:
                    action = SHIFT
            if action == SHIFT:
                stack.append(buffers.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(self.reduce(left, right, tracking[0]))
            taken.append(action)
            log.debug("step %d: action %s, stack %d", t, "SR"[action], len(stack))
        assert len(stack) == 3, f"stack has {len(stack)} entries"
        return {"h": stack[-1][0], "transitions": taken, "loss": loss}


class StatefulSPINN(nn.Module):
    """As in the tutorial: the tracker keeps its own state, and transitions are given."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, 2 * D)
        self.reduce = Reducer(D, 8)
        self.tracker = Tracker(D, 8)

    def forward(self, tokens, transitions):
        self.tracker.reset_state()
        bundles = self.embed(torch.tensor(tokens)).split(1, dim=0)
        buf = [b.squeeze(0).chunk(2) for b in bundles][::-1]
        buf.insert(0, (torch.zeros(D), torch.zeros(D)))
        stack = [buf[0], buf[0]]
        scores = []
        for transition in transitions:
            (tracking, _), score = self.tracker(buf, stack)
            scores.append(score)
            if transition == SHIFT:
                stack.append(buf.pop())
            elif transition == REDUCE:
                r, l = stack.pop(), stack.pop()
                stack.append(self.reduce(l, r, tracking))
        return stack.pop()[0], torch.stack(scores)


torch.manual_seed(0)
spinn = SPINN().eval()
parse = dietcode.program(spinn)
stateful = dietcode.program(StatefulSPINN().eval())


def random_transitions(r, n):
    out, stack, left = [], 0, n
    while left or stack > 1:
        if stack < 2 or (left and r.random() < 0.5):
            out.append(SHIFT)
            stack, left = stack + 1, left - 1
        else:
            out.append(REDUCE)
            stack -= 1
    return out


def unsupervised(seed, lengths):
    r = random.Random(seed)
    return [[r.randrange(V) for _ in range(n)] for n in lengths]


def supervised(seed, lengths):
    r = random.Random(seed)
    return [([r.randrange(V) for _ in range(n)], random_transitions(r, n)) for n in lengths]


PROGRAMS = [
    (parse, lambda: unsupervised(0, (1, 2, 3, 5, 8, 4)), lambda: unsupervised(1, (6, 11, 1))),
    (stateful, lambda: supervised(2, (2, 3, 4, 6, 7)), lambda: supervised(3, (1, 5, 10))),
]
