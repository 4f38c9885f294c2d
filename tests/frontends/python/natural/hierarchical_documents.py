"""Hierarchical attention (Yang et al. 2016) over documents as text; entities that are tracked by dicts of tensors (EntNet)."""
import re
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Dict, List

import torch
import torch.nn as nn

import dietcode

WORD, HID = 8, 10
Prediction = namedtuple("Prediction", ["label", "scores", "sentences"])
LEXICON = {}


def word_id(word):
    return LEXICON.setdefault(word, len(LEXICON) % 40) if len(LEXICON) < 40 else LEXICON.get(word, 0)


for w in "the a dog cat bird sees chases likes loves mat tree and but is was big small red quickly it he she".split():
    word_id(w)
LEXICON = dict(LEXICON)


def lookup(word):
    return LEXICON.get(word.lower(), len(LEXICON))


class AttentionPool(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.proj, self.context = nn.Linear(size, size), nn.Parameter(torch.randn(size))

    def forward(self, states: List[torch.Tensor]):
        scores = [torch.tanh(self.proj(h)).dot(self.context) for h in states]
        m = max(s.item() for s in scores)
        weights = [torch.exp(s - m) for s in scores]
        z = sum(weights)
        return sum(w * h for w, h in zip(weights, states)) / z, [w / z for w in weights]


class HAN(nn.Module):
    labels = ("neg", "neutral", "pos")

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(LEXICON) + 1, WORD)
        self.word_rnn, self.sent_rnn = nn.GRUCell(WORD, HID), nn.GRUCell(HID, HID)
        self.word_attn, self.sent_attn = AttentionPool(HID), AttentionPool(HID)
        self.fc = nn.Linear(HID, len(self.labels))

    def sentence(self, text):
        h, states = torch.zeros(HID), []
        for word in re.findall(r"\w+", text):
            h = self.word_rnn(self.embed(torch.tensor(lookup(word))), h)
            states.append(h)
        if not states:
            return torch.zeros(HID), []
        return self.word_attn(states)

    def forward(self, document: str):
        h, states, important = torch.zeros(HID), [], []
        for text in filter(None, (s.strip() for s in document.split("."))):
            vector, weights = self.sentence(text)
            if weights:
                top = max(range(len(weights)), key=lambda i: float(weights[i]))
                important.append(re.findall(r"\w+", text)[top])
            h = self.sent_rnn(vector, h)
            states.append(h)
        if not states:
            raise ValueError("empty document")
        pooled, weights = self.sent_attn(states)
        scores = self.fc(pooled).log_softmax(-1)
        return Prediction(self.labels[scores.argmax()], scores, dict(zip(important, weights)))


@dataclass
class Entity:
    name: str
    state: torch.Tensor
    mentions: int = 0
    facts: List[str] = field(default_factory=list)


class EntityTracker(nn.Module):
    NOUNS = {"dog", "cat", "bird", "tree", "mat"}

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(LEXICON) + 1, HID)
        self.update, self.gate = nn.GRUCell(HID, HID), nn.Linear(2 * HID, 1)
        self.compare = nn.Linear(HID, HID)

    def forward(self, document):
        entities: Dict[str, Entity] = {}
        last = None
        for sentence in document.lower().split("."):
            tokens = sentence.split()
            if not tokens:
                continue
            vector = torch.stack([self.embed(torch.tensor(lookup(t))) for t in tokens]).mean(0)
            mentioned = [t for t in tokens if t in self.NOUNS]
            if not mentioned and last and {"it", "he", "she"} & set(tokens):
                mentioned = [last]
            for name in mentioned:
                entity = entities.get(name)
                if entity is None:
                    entity = entities[name] = Entity(name, self.embed.weight[lookup(name)].clone())
                if self.gate(torch.cat([entity.state, vector])) > 0:
                    entity.state = self.update(vector, entity.state)
                    entity.facts.append(" ".join(tokens))
                entity.mentions += 1
                last = name
        ranking = sorted(entities.values(), key=lambda e: (-e.mentions, e.name))
        if len(ranking) > 1:
            a, b, *_ = ranking
            return entities, f"{a.name}/{b.name}", torch.cosine_similarity(self.compare(a.state), self.compare(b.state), dim=0)
        return entities, None, None


torch.manual_seed(1)
han, tracker = HAN().eval(), EntityTracker().eval()
DOCUMENTS = [
    "The dog sees a cat. It chases the cat quickly.",
    "A bird. The big bird likes the tree. It was red",
    "the mat",
    "She loves it. He is small and red. The cat was big but the dog likes the small cat.",
    "Unknown words everywhere. dog",
    "",
    "... . ",
    "The cat sees the dog. The dog sees the bird. The bird sees the mat. The mat is red. It loves the tree. It is a tree.",
]
PROGRAMS = [
    (dietcode.program(han), lambda: DOCUMENTS[:4], lambda: DOCUMENTS[3:]),
    (dietcode.program(tracker), lambda: DOCUMENTS[:4], lambda: DOCUMENTS[3:]),
]
