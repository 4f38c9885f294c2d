"""Stack-augmented RNN (Joulin and Mikolov 2015), soft stacks in place; and a neural push-down automaton with a real stack."""
import random
import string

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

ALPHABET = string.ascii_lowercase[:4]
H, DEPTH, M = 12, 8, 3
PUSH, POP, NOOP = 0, 1, 2


class StackRNN(nn.Module):
    def __init__(self, input_size=len(ALPHABET), hidden=H):
        super().__init__()
        self.hidden_size = hidden
        self.in2hid = nn.Linear(input_size, hidden)
        self.hid2hid = nn.Linear(hidden, hidden)
        self.stack2hid = nn.Linear(M, hidden)
        self.action = nn.Linear(hidden, 3)
        self.push = nn.Linear(hidden, M)
        self.out = nn.Linear(hidden, input_size)

    def forward(self, text):
        hidden = torch.zeros(self.hidden_size)
        stack = torch.zeros(DEPTH, M)
        nll = 0.0
        for c, following in zip(text, text[1:] + "a"):
            x = F.one_hot(torch.tensor(ALPHABET.index(c)), len(ALPHABET)).float()
            hidden = torch.sigmoid(self.in2hid(x) + self.hid2hid(hidden) + self.stack2hid(stack[0]))
            a = F.softmax(self.action(hidden), dim=0)
            pushed, popped = torch.zeros(DEPTH, M), torch.zeros(DEPTH, M)
            pushed[0] = torch.sigmoid(self.push(hidden))
            pushed[1:] = stack[:-1]
            popped[:-1] = stack[1:]
            stack = a[PUSH] * pushed + a[POP] * popped + a[NOOP] * stack
            logp = F.log_softmax(self.out(hidden), dim=0)
            nll -= logp[ALPHABET.index(following)].item()
        return hidden, stack, nll


class PushDown(nn.Module):
    """Actions by argmax; brackets have to match, or the automaton gives up."""

    class Reject(Exception):
        pass

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(6, H)
        self.cell = nn.LSTMCell(2 * H, H)
        self.to_stack = nn.Linear(H, H)
        self.decide = nn.Linear(2 * H, 3)
        self.empty = nn.Parameter(torch.zeros(H), requires_grad=False)

    def top(self, stack):
        return stack[-1] if stack else self.empty

    def run(self, text):
        stack, brackets, trace = [], [], []
        h = c = torch.zeros(H)
        for at, ch in enumerate(text):
            kind = "([{)]}".find(ch)
            if kind < 0:
                continue
            if kind < 3:
                brackets.append(kind)
            elif not brackets or brackets.pop() != kind - 3:
                raise self.Reject(at, ch)
            h, c = self.cell(torch.cat([self.emb.weight[kind], self.top(stack)]), (h, c))
            action = self.decide(torch.cat([h, self.top(stack)])).argmax().item()
            if action == PUSH:
                stack.append(torch.tanh(self.to_stack(h)))
            elif action == POP and stack:
                popped = stack.pop()
                h = h + popped
            trace.append(action)
        return h, trace, len(stack)

    def forward(self, text):
        try:
            h, trace, left = self.run(text)
        except self.Reject as e:
            at, ch = e.args
            return f"{ch!r} at {at}"
        return h, "".join("+-."[a] for a in trace), left


torch.manual_seed(2)
read, automaton = dietcode.program(StackRNN().eval()), dietcode.program(PushDown().eval())


def words(seed, lengths):
    r = random.Random(seed)
    return ["".join(r.choice(ALPHABET) for _ in range(n)) for n in lengths]


PROGRAMS = [
    (read, lambda: words(0, [1, 2, 5, 7]), lambda: words(1, [3, 12, 0])),
    (automaton, lambda: ["()", "([]{})", "x[(a)]", "(((())))", "[}"], lambda: ["", "{[()()]}[]", ")", "((", "plain"]),
]
