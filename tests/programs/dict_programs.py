"""Programs that make dicts: memos, counts, graphs, beams, routing, caches."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import nn

import dietcode

H = 16
EMBEDDING, CELL = nn.Embedding(30, H), nn.GRUCell(H, H)
MERGE, SCORE, OUT = nn.Linear(2 * H, H), nn.Linear(H, 1), nn.Linear(H, 5)
HEADS = nn.ModuleList([nn.Linear(H, H) for _ in range(3)])


def embedded(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


# ---- A graph with shared nodes: each is computed once ----


def node_state(edges: Any, node: int, memo: Any) -> Any:
    if node in memo:
        return memo[node]
    state = embedded(node)
    for below in edges[node]:
        state = torch.tanh(MERGE(torch.cat([state, node_state(edges, below, memo)])))
    memo[node] = state
    return state


def shared_nodes() -> Any:
    def program(edges: Any) -> Any:
        memo: dict[int, Any] = {}
        state = node_state(edges, 0, memo)
        return state, len(memo)

    graphs = [[[1, 2], [3], [3, 4], [4], []], [[1], []], [[]], [[1, 2], [2], [3], []]]
    return dietcode.program(program), graphs


# ---- Words counted, and their vectors weighted by how often they are ----


def counted_words() -> Any:
    def program(words: Any) -> Any:
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        total = torch.zeros(H)
        for word, count in counts.items():
            total = total + embedded(word) * count
        most = max(counts, key=counts.get)
        return total, counts, most, sorted(counts), sum(counts.values())

    return dietcode.program(program), [[1, 2, 1], [5], [3, 3, 3, 1, 2, 2], [7, 7, 1]], [[0] * 9 + [1]]


# ---- Beams, with prefixes as keys ----


def merged_beams() -> Any:
    def program(frames: Any) -> Any:
        beams = {(): 0.0}
        for frame in frames:
            scores = torch.log_softmax(OUT(embedded(frame)), dim=0).tolist()
            ahead: dict[Any, float] = {}
            for prefix, score in beams.items():
                for label in range(5):
                    same = len(prefix) > 0 and prefix[-1] == label
                    key = prefix if same or label == 0 else (*prefix, label)
                    ahead[key] = max(ahead.get(key, -1e9), score + scores[label])
            best = sorted(ahead.items(), key=lambda pair: pair[1], reverse=True)
            beams = dict(best[:3])
        return [list(key) for key in beams], list(beams.values())

    return dietcode.program(program), [[1, 2, 3], [4], [9, 9, 9, 2], [5, 6]], [[3, 1, 4, 1, 5, 9, 2, 6]]


# ---- A graph walked breadth first, with distances ----


def distances() -> Any:
    def program(edges: Any) -> Any:
        far = {0: 0}
        queue = [0]
        state = torch.zeros(H)
        while queue:
            node = queue.pop(0)
            state = CELL(embedded(node), state)
            for below in edges[node]:
                if below not in far:
                    far[below] = far[node] + 1
                    queue.append(below)
        return state, far

    return dietcode.program(program), [[[1, 2], [2], [0]], [[]], [[1], [2], [3], [0]]]


# ---- A dict in a dataclass, changed by functions; del, pop, setdefault, update ----


@dataclass
class Memory:
    slots: Any
    log: list[int] = field(default_factory=list)


def remember(memory: Memory, key: int, value: Any) -> None:
    memory.slots[key] = value
    memory.log.append(key)
    if len(memory.slots) > 2:
        oldest = next(iter(memory.slots))
        del memory.slots[oldest]


def bounded_memory() -> Any:
    def program(words: Any) -> Any:
        memory = Memory({})
        for word in words:
            found = memory.slots.get(word)
            state = embedded(word) if found is None else torch.tanh(found)
            remember(memory, word, state)
        return list(memory.slots.keys()), list(memory.slots.values()), memory.log

    return dietcode.program(program), [[1, 2, 3], [1, 1, 1], [4, 5, 4, 6, 4]], [[9, 8, 9, 8, 7, 9]]


def many_methods() -> Any:
    def program(words: Any) -> Any:
        groups: dict[int, list[int]] = {}
        for word in words:
            groups.setdefault(word % 3, []).append(word)
        copy = groups.copy()
        first = copy.pop(words[0] % 3)
        other = copy.pop(7, [])
        copy.update({5: [1], words[0] % 3: first})
        copy.update([(6, other)])
        both = {**groups, 8: [2], **copy}
        last = both.popitem()
        names = dict(a=len(both), b=1)  # noqa: C408  (what is tried)
        turned = {value: key for key, value in names.items()}
        is_dict = isinstance(both, dict) and not isinstance(words, dict)
        empty = {}
        found = 0
        if not empty and both:
            found = len(dict(both))
        for at, key in enumerate(both):
            found = found + at * key
        groups.clear()
        pairs = list(names.items())
        state = embedded(found % 30)
        return (
            state,
            both,
            last,
            turned,
            is_dict,
            pairs,
            len(groups),
            min(both),
            "a" in names,
            2 in names.values(),
        )

    return dietcode.program(program), [[1, 2, 3, 4], [5], [6, 9, 12]], [[2, 2], [7, 8, 9, 10, 11]]


# ---- Rows that are looked up by texts and by members of an Enum ----


class Kind(Enum):
    LEAF = "leaf"
    PAIR = "pair"


def typed_nodes() -> Any:
    def program(items: Any) -> Any:
        sums = {Kind.LEAF: torch.zeros(H), Kind.PAIR: torch.ones(H)}
        seen = {"leaf": 0, "pair": 0}
        for kind, word in items:
            key = Kind.LEAF if kind == "leaf" else Kind.PAIR
            sums[key] = sums[key] + embedded(word)
            seen[kind] += 1
        return MERGE(torch.cat([sums[Kind.LEAF], sums[Kind.PAIR]])), seen

    given = [[("leaf", 1), ("pair", 2)], [], [("leaf", 3), ("leaf", 4)]]
    return dietcode.program(program), given


# ---- Nested dicts, and dicts of instances of their own ----


def nested() -> Any:
    def program(pairs: Any) -> Any:
        table: dict[int, dict[int, float]] = {}
        for a, b in pairs:
            if a not in table:
                table[a] = {}
            row = table[a]
            row[b] = row.get(b, 0.0) + SCORE(embedded(b)).item()
        best = {a: max(row.values()) for a, row in table.items()}
        return table, best

    return dietcode.program(program), [[(1, 2), (1, 3), (2, 2)], [(0, 0)], [(1, 1), (1, 1)]]


# ---- What fails, fails in both ----


def missing_keys() -> Any:
    def program(words: Any) -> Any:
        known = {1: embedded(1), 2: embedded(2)}
        return [known[word] for word in words]

    return dietcode.program(program), [[1, 2], [2]], [[3], [1, 9], [1]]


PROGRAMS = {
    one.__name__: one
    for one in (
        shared_nodes,
        counted_words,
        merged_beams,
        distances,
        bounded_memory,
        many_methods,
        typed_nodes,
        nested,
        missing_keys,
    )
}
