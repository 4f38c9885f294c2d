"""A neural Turing machine (Graves et al. 2014) with content and location addressing, for the copy task."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode


class Memory:
    def __init__(self, bank):
        self.bank = bank.clone()
        self.N, self.M = bank.shape

    def read(self, w):
        return w @ self.bank

    def write(self, w, erase, add):
        self.bank = self.bank * (1 - torch.outer(w, erase)) + torch.outer(w, add)


class Head(nn.Module):
    def __init__(self, controller, N, M, is_write):
        super().__init__()
        self.is_write = is_write
        self.lengths = [M, 1, 1, 3, 1] + ([M, M] if is_write else [])
        self.fc = nn.Linear(controller, sum(self.lengths))
        self.register_buffer("w0", torch.softmax(torch.linspace(1.0, 0.0, N), 0))

    def address(self, k, beta, g, s, gamma, memory, w_prev):
        k, beta, g = torch.tanh(k), F.softplus(beta), torch.sigmoid(g)
        s, gamma = torch.softmax(s, dim=0), 1 + F.softplus(gamma)
        similarity = F.cosine_similarity(memory.bank + 1e-8, k.unsqueeze(0) + 1e-8, dim=-1)
        content = torch.softmax(beta * similarity, dim=0)
        gated = g * content + (1 - g) * w_prev
        shifted = torch.zeros_like(gated)
        for offset in range(-1, 2):
            shifted += s[offset + 1] * torch.roll(gated, offset)
        sharp = shifted ** gamma
        return sharp / (sharp.sum() + 1e-8)

    def forward(self, x, memory, w_prev):
        k, beta, g, s, gamma, *rest = torch.split(self.fc(x), self.lengths)
        w = self.address(k, beta, g, s, gamma, memory, w_prev)
        if self.is_write:
            erase, add = rest
            memory.write(w, torch.sigmoid(erase), torch.tanh(add))
            return w
        return memory.read(w), w


class NTM(nn.Module):
    def __init__(self, n_bits=4, N=6, M=8, controller=16):
        super().__init__()
        self.n_bits, self.N, self.M = n_bits, N, M
        self.controller = nn.LSTMCell(n_bits + 1 + M, controller)
        self.size = controller
        self.heads = nn.ModuleList([Head(controller, N, M, False), Head(controller, N, M, True)])
        self.out = nn.Linear(controller + M, n_bits)
        self.register_buffer("bank0", torch.randn(N, M) * 0.1)

    def init_state(self):
        self.memory = Memory(self.bank0)
        self.weights = [head.w0 for head in self.heads]
        self.state = (torch.zeros(self.size), torch.zeros(self.size))
        self.read_vec = torch.zeros(self.M)

    def step(self, x=None):
        if x is None:
            x = torch.zeros(self.n_bits + 1)
        self.state = self.controller(torch.cat([x, self.read_vec]), self.state)
        h = self.state[0]
        for n, head in enumerate(self.heads):
            if head.is_write:
                self.weights[n] = head(h, self.memory, self.weights[n])
            else:
                self.read_vec, self.weights[n] = head(h, self.memory, self.weights[n])
        return torch.sigmoid(self.out(torch.cat([h, self.read_vec])))

    def forward(self, sequence):
        self.init_state()
        for row in sequence:
            self.step(torch.cat([row, torch.zeros(1)]))
        self.step(torch.tensor([0.0] * self.n_bits + [1.0]))
        outputs = []
        for _ in sequence:
            outputs.append(self.step())
        return outputs, self.memory.bank


torch.manual_seed(0)
ntm = NTM().eval()
copy_task = dietcode.program(ntm)


def sequences(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [[torch.randint(0, 2, (4,), generator=g).float() for _ in range(n)] for n in lengths]


PROGRAMS = [(copy_task, lambda: sequences(0, [1, 2, 3, 4]), lambda: sequences(7, [6, 1, 0]))]
