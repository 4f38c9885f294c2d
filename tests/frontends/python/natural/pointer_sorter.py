"""Pointer networks that sort numbers (Vinyals et al. 2016) with read-process-write, and a copy mechanism (See et al. 2017)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

D = 12
VOCABULARY = "<unk> <s> </s> the a cat dog sat ran on mat".split()
INDEX = {w: i for i, w in enumerate(VOCABULARY)}


class Sorter(nn.Module):
    def __init__(self, process_steps=2):
        super().__init__()
        self.embed = nn.Linear(1, D)
        self.process = nn.LSTMCell(D, D)
        self.write = nn.LSTMCell(D, D)
        self.W_ref, self.W_q, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Parameter(torch.randn(D))
        self.process_steps = process_steps
        self.first = nn.Parameter(torch.randn(D))

    def forward(self, numbers):
        n = len(numbers)
        memory = self.embed(torch.tensor(numbers).unsqueeze(1))
        q, c = torch.zeros(D), torch.zeros(D)
        for _ in range(self.process_steps):
            attention = F.softmax(memory @ q, dim=0)
            r = (attention.unsqueeze(1) * memory).sum(dim=0)
            q, c = self.process(r, (q, c))
        refs = self.W_ref(memory)
        mask = torch.ones(n, dtype=torch.bool)
        order, x = [], self.first
        log_likelihood = torch.zeros(())
        while mask.any():
            q, c = self.write(x, (q, c))
            u = torch.tanh(refs + self.W_q(q)) @ self.v
            u[~mask] = -float("inf")
            log_p = F.log_softmax(u, dim=0)
            i = torch.argmax(log_p)
            log_likelihood += log_p[i]
            mask[i] = False
            order.append(i.item())
            x = memory[i]
        return [numbers[i] for i in order], log_likelihood


class Copier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(VOCABULARY), D)
        self.enc, self.dec = nn.GRUCell(D, D), nn.GRUCell(2 * D, D)
        self.gen, self.p_gen = nn.Linear(2 * D, len(VOCABULARY)), nn.Linear(3 * D, 1)
        self.coverage_weight = nn.Parameter(torch.tensor(0.5))

    def forward(self, text, max_words=6):
        words = text.lower().split()
        extended = list(dict.fromkeys(w for w in words if w not in INDEX))
        ids = [INDEX.get(w, 0) for w in words]
        copies = [INDEX[w] if w in INDEX else len(VOCABULARY) + extended.index(w) for w in words]
        h, states = torch.zeros(D), []
        for i in ids:
            h = self.enc(self.emb(torch.tensor(i)), h)
            states += [h]
        memory, coverage = torch.stack(states), torch.zeros(len(words))
        token, out, switches = INDEX["<s>"], [], []
        coverage_loss = 0.0
        while len(out) < max_words:
            attention = torch.softmax(memory @ h - self.coverage_weight * coverage, dim=0)
            context = attention @ memory
            x = self.emb(torch.tensor(token if token < len(VOCABULARY) else 0))
            h = self.dec(torch.cat([x, context]), h)
            p = torch.sigmoid(self.p_gen(torch.cat([h, context, x])))
            dist = torch.cat([p * self.gen(torch.cat([h, context])).softmax(-1), torch.zeros(len(extended))])
            dist.index_add_(0, torch.tensor(copies), (1 - p) * attention)
            coverage_loss += torch.min(attention, coverage).sum().item()
            coverage += attention
            token = dist.argmax().item()
            switches.append(round(p.item(), 2))
            if VOCABULARY[token:token + 1] == ["</s>"]:
                break
            out.append((VOCABULARY + extended)[token])
        return " ".join(out), dist, coverage_loss


torch.manual_seed(3)
sorter, copier = Sorter().eval(), Copier().eval()


def numbers(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [torch.rand(n, generator=g).tolist() for n in lengths]


PROGRAMS = [
    (dietcode.program(sorter), lambda: numbers(0, [1, 2, 3, 5]), lambda: numbers(1, [4, 7])),
    (
        dietcode.program(copier),
        lambda: ["the cat sat on the mat", "a dog", "Rex ran", "the zebra and the gnu sat on a lion"],
        lambda: ["dog", "Ada met Bob on the mat", "", "one two three four five six seven"],
    ),
]
