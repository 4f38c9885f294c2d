"""End-to-end memory networks (Sukhbaatar et al. 2015) on bAbI-like stories: hops until attention is sharp, text in and out."""
import re
from functools import cached_property

import torch
from torch import nn

import dietcode

STORY = """1 mary went to the kitchen
2 john took the ball
3 john went to the garden
4 where is the ball	garden	2 3
5 mary took the milk
6 mary went to the office
7 where is the milk	office	5 6
1 sandra is in the hall
2 where is sandra	hall	1
3 sandra took the apple
4 john is in the kitchen
5 sandra went to the garden
6 where is the apple	garden	3 5
7 where is john	kitchen	4"""


class Vocabulary(dict):
    def __missing__(self, word):
        return 0

    def add(self, word):
        if word not in self:
            self[word] = len(self) + 1

    @cached_property
    def words(self):
        return {i: w for w, i in self.items()}


def tokenize(sent):
    return [x.strip() for x in re.split(r"(\W+)", sent) if x.strip()]


def parse_stories(lines):
    data, story = [], []
    for line in lines.split("\n"):
        nid, line = line.split(" ", 1)
        if int(nid) == 1:
            story = []
        if "\t" in line:
            q, a, supporting = line.split("\t")
            data.append(([x for x in story if x], tokenize(q), a, [int(s) for s in supporting.split()]))
            story.append("")
        else:
            story.append(tokenize(line))
    return data


vocab = Vocabulary()
questions = parse_stories(STORY)
for story, query, answer, _ in questions:
    for w in [w for s in story for w in s] + query + [answer]:
        vocab.add(w)


class MemN2N(nn.Module):
    def __init__(self, size, dim=12, max_hops=4):
        super().__init__()
        self.A = nn.ModuleList(nn.Embedding(size + 1, dim) for _ in range(max_hops + 1))
        self.temporal = nn.Embedding(10, dim)
        self.max_hops, self.dim = max_hops, dim

    def position_encoding(self, n):
        encoding = torch.ones(n, self.dim)
        for i in range(n):
            for j in range(self.dim):
                encoding[i, j] = (j + 1 - (self.dim + 1) / 2) * (i + 1 - (n + 1) / 2)
        return 1 + 4 * encoding / self.dim / n

    def sentence(self, words, hop):
        ids = torch.tensor([vocab[w] for w in words])
        return (self.A[hop](ids) * self.position_encoding(len(words))).sum(0)

    def forward(self, story, query):
        u = self.A[0](torch.tensor([vocab[w] for w in query])).sum(dim=0)
        attentions = []
        for hop in range(self.max_hops):
            if not story:
                break
            keys = torch.stack([self.sentence(s, hop) + self.temporal(torch.tensor(min(9, len(story) - k))) for k, s in enumerate(story)])
            values = torch.stack([self.sentence(s, hop + 1) for s in story])
            p = torch.softmax(keys @ u / self.dim, dim=0)
            attentions.append(p)
            u = u + p @ values / 10
            if float(p.max()) > 0.9:
                break
        logits = self.A[-1].weight @ u
        return logits, attentions


torch.manual_seed(0)
net = MemN2N(len(vocab)).eval()


@dietcode.program
def ask(story, query, answer=None, supporting=()):
    logits, attentions = net(story, query)
    logits[0] = float("-inf")
    best = vocab.words[int(logits.argmax())]
    looked = [int(p.argmax()) + 1 for p in attentions]
    rank = None
    if answer is not None:
        order = logits.argsort(descending=True).tolist()
        rank = order.index(vocab[answer])
    return dict(answer=best, looked=looked, hops=len(looked), rank=rank, hits=sum(s in looked for s in supporting))


def others():
    return [
        *[(s + s, q) for s, q, *_ in questions],
        ([], ["where", "is", "mary"]),
        ([["mary", "saw", "a", "ghost", "in", "the", "old", "garden"]], ["who"]),
    ]


PROGRAMS = [(ask, lambda: questions, others)]
