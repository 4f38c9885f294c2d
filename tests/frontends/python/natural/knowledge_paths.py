"""Best-first path search over a knowledge graph with a neural heuristic, heapq and relation strings."""
import heapq
import itertools
import random
from collections import defaultdict, deque
from typing import NamedTuple, Optional

import torch
from torch import nn

import dietcode

D = 12
RELATIONS = ["born_in", "capital_of", "part_of", "works_for", "spouse"]
ENTITIES = [f"e{k:02d}" for k in range(12)]


class Step(NamedTuple):
    relation: str
    entity: str

    def __str__(self):
        return f"-{self.relation}->{self.entity}"


class NoPath(LookupError):
    pass


class KnowledgeGraph:
    def __init__(self, triples):
        self._out = defaultdict(list)
        for head, relation, tail in triples:
            self._out[head].append(Step(relation, tail))
            self._out[tail].append(Step(f"{relation}^-1", head))

    def neighbours(self, entity):
        return sorted(self._out.get(entity, ()))


class PathScorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.entity = nn.Embedding(len(ENTITIES), D)
        self.relation = nn.Embedding(2 * len(RELATIONS), D)
        self.rnn = nn.GRUCell(2 * D, D)
        self.goal = nn.Bilinear(D, D, 1)

    def entity_vector(self, name):
        return self.entity(torch.tensor(int(name[1:])))

    def relation_vector(self, name):
        base, _, inverse = name.partition("^")
        return self.relation(torch.tensor(RELATIONS.index(base) + (len(RELATIONS) if inverse else 0)))

    def start(self, query):
        return torch.tanh(self.relation_vector(query))

    def step(self, state, step):
        return self.rnn(torch.cat([self.relation_vector(step.relation), self.entity_vector(step.entity)]), state)

    def cost(self, state, target):
        return float(torch.nn.functional.softplus(self.goal(state, self.entity_vector(target))))


torch.manual_seed(0)
scorer = PathScorer().eval()


@dietcode.program
def find_path(triples, source, target, query, budget=20):
    graph, tie = KnowledgeGraph(triples), itertools.count()
    state = scorer.start(query)
    queue = [(0.0, next(tie), source, state, ())]
    best = {}
    expanded = 0
    while queue:
        priority, _, entity, state, path = heapq.heappop(queue)
        if entity == target and path:
            return source + "".join(map(str, path)), round(priority, 3), state
        if best.get(entity, float("inf")) <= priority:
            continue
        best[entity] = priority
        expanded += 1
        if expanded > budget:
            raise NoPath(f"{source} to {target}: gave up after {budget}")
        for step in graph.neighbours(entity):
            if any(s.entity == step.entity for s in path):
                continue
            new = scorer.step(state, step)
            heapq.heappush(queue, (len(path) * 0.1 + scorer.cost(new, target), next(tie), step.entity, new, (*path, step)))
    raise NoPath(f"no path from {source} to {target}")


@dietcode.program
def all_paths(triples, source, length=2):
    """Vectors of all paths up to a length, by their last entity, breadth first."""
    graph = KnowledgeGraph(triples)
    found, queue = {}, deque([(source, scorer.entity_vector(source), 0)])
    while queue:
        entity, vector, depth = queue.popleft()
        found.setdefault(entity, []).append(vector)
        if depth < length:
            queue.extend((s.entity, scorer.step(vector, s), depth + 1) for s in graph.neighbours(entity))
    return {entity: torch.stack(vectors).mean(dim=0) for entity, vectors in sorted(found.items())}


def graph(r, edges):
    return [(*r.sample(ENTITIES, 1), r.choice(RELATIONS), r.choice(ENTITIES)) for _ in range(edges)]


def questions(seed, sizes):
    r = random.Random(seed)
    return [(graph(r, n), *r.sample(ENTITIES, 2), r.choice(RELATIONS)) for n in sizes]


def places(seed, sizes):
    r = random.Random(seed)
    return [(graph(r, n), r.choice(ENTITIES)) for n in sizes]


PROGRAMS = [
    (find_path, lambda: questions(0, [10, 20, 25, 30, 30]), lambda: [*questions(1, [12, 24, 40, 0]), (*questions(2, [30])[0], 1)]),
    (all_paths, lambda: places(3, [4, 6, 8]), lambda: [*places(4, [10, 0]), (*places(5, [6])[0], 3)]),
]
