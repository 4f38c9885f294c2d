"""Programs that search, parse, rewrite and retrieve; each gives a program, samples and further instances."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import dietcode

H, VOCAB = 16, 12
EMBEDDING, CELL = nn.Embedding(VOCAB, H).eval(), nn.GRUCell(H, H).eval()
MERGE, VALUE, LOGITS = nn.Linear(2 * H, H).eval(), nn.Linear(H, 1).eval(), nn.Linear(H, VOCAB).eval()
ACTIONS, QUERY = nn.Linear(H, 3).eval(), nn.Linear(H, H).eval()
Case = tuple[Any, ...]


def _words(seed: int, low: int = 1, high: int = 7, count: int = 6) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(VOCAB) for _ in range(draw.randint(low, high))] for _ in range(count)]


def _case(program: Any, instances: list[Any], samples: int = 4) -> Case:
    return dietcode.program(program), instances[:samples], instances[samples:]


def vector(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


def merged(left: Any, right: Any) -> Any:
    return torch.tanh(MERGE(torch.cat([left, right])))


# ---- Expressions by precedence, with a stack of operators ----


def precedence_parser() -> Case:
    levels = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 3}

    def reduce(values: Any, operators: Any) -> None:
        name = operators.pop()
        right = values.pop()
        left = values.pop()
        if name in ("+", "-"):
            values.append(merged(left, right))
        else:
            values.append(torch.relu(MERGE(torch.cat([right, left]))))

    def program(tokens: Any) -> Any:
        values: list[Any] = []
        operators: list[str] = []
        most = 0
        for token in tokens:
            if token == "(":
                operators.append(token)
            elif token == ")":
                while operators[-1] != "(":
                    reduce(values, operators)
                operators.pop()
            elif isinstance(token, str):
                while operators and operators[-1] != "(" and levels[operators[-1]] >= levels[token]:
                    reduce(values, operators)
                operators.append(token)
            else:
                values.append(vector(token))
            most = max(most, len(values))
        while len(operators) > 0:
            reduce(values, operators)
        assert len(values) == 1
        return values[0], most

    texts = [
        [1, "+", 2, "*", 3],
        ["(", 1, "+", 2, ")", "*", 3, "^", 4],
        [5],
        [1, "-", 2, "-", 3, "/", "(", 4, "*", 5, ")"],
        ["(", "(", 7, ")", ")"],
        [1, "^", 2, "^", 3, "+", 4],
    ]
    return _case(program, texts)


# ---- A chart: the best split of every span ----


def best_splits() -> Case:
    def program(words: Any) -> Any:
        many = len(words)
        states: dict[tuple[int, int], Any] = {}
        scores: dict[tuple[int, int], float] = {}
        splits: dict[tuple[int, int], int] = {}
        for at in range(many):
            states[at, at + 1] = vector(words[at])
            scores[at, at + 1] = 0.0
        for width in range(2, many + 1):
            for begin in range(many - width + 1):
                end = begin + width
                found, best = -1, -1e30
                for middle in range(begin + 1, end):
                    own = VALUE(merged(states[begin, middle], states[middle, end])).item()
                    own = own + scores[begin, middle] + scores[middle, end]
                    if own > best:
                        found, best = middle, own
                states[begin, end] = merged(states[begin, found], states[found, end])
                scores[begin, end] = best
                splits[begin, end] = found
        return states[0, many], scores[0, many], splits

    return _case(program, _words(1, 1, 5))


# ---- A game tree with cuts ----


@dataclass
class Position:
    pieces: int
    moves: list[Any] = field(default_factory=list)


def _position(draw: random.Random, depth: int) -> Position:
    many = draw.randint(1, 3) if depth else 0
    return Position(draw.randrange(VOCAB), [_position(draw, depth - 1) for _ in range(many)])


def alpha_beta() -> Case:
    def search(position: Any, state: Any, low: float, high: float, is_ours: bool, seen: Any) -> float:
        seen.append(position.pieces)
        state = CELL(vector(position.pieces), state)
        if not position.moves:
            return VALUE(state).item()
        best = -1e9 if is_ours else 1e9
        for move in position.moves:
            found = search(move, state, low, high, not is_ours, seen)
            if is_ours:
                best = max(best, found)
                low = max(low, best)
            else:
                best = min(best, found)
                high = min(high, best)
            if low >= high:
                break
        return best

    def program(position: Any) -> Any:
        seen: list[int] = []
        return search(position, torch.zeros(H), -1e9, 1e9, True, seen), seen

    draw = random.Random(3)
    return _case(program, [_position(draw, 3) for _ in range(8)], 5)


# ---- Greedy text with penalties, and rules for when to stop ----


def penalised_text() -> Case:
    def program(words: Any, limit: int) -> Any:
        state = torch.zeros(H)
        for word in words:
            state = CELL(vector(word), state)
        made: list[int] = []
        reason = "length"
        while len(made) < limit:
            scores = LOGITS(state).tolist()
            for word in made:
                scores[word] = scores[word] - 0.3
            best = max(range(len(scores)), key=lambda word: scores[word])
            if best == 0:
                reason = "end"
                break
            if len(made) >= 2 and made[-1] == best and made[-2] == best:
                reason = "loop"
                break
            made.append(best)
            state = CELL(vector(best), state)
        return made, reason == "length", state

    return _case(program, [(words, 1 + len(words) * 2) for words in _words(4)])


# ---- A tree rewritten by rules until none applies ----


@dataclass
class Term:
    name: str
    args: list[Any] = field(default_factory=list)
    word: int = 0


def _term(draw: random.Random, depth: int) -> Term:
    if depth == 0 or draw.random() < 0.2:
        return Term("leaf", [], draw.randrange(VOCAB))
    name = draw.choice(["and", "or", "not"])
    return Term(name, [_term(draw, depth - 1) for _ in range(1 if name == "not" else 2)])


def pushed_negations() -> Case:
    def rewritten(term: Any, is_negated: bool) -> Any:
        match term.name:
            case "not":
                return rewritten(term.args[0], not is_negated)
            case "leaf":
                return Term("not", [term]) if is_negated else term
            case _:
                name = term.name
                if is_negated:
                    name = "or" if name == "and" else "and"
                return Term(name, [rewritten(one, is_negated) for one in term.args])

    def value(term: Any) -> Any:
        if term.name == "leaf":
            return vector(term.word)
        below = [value(one) for one in term.args]
        if term.name == "not":
            return -below[0]
        return torch.minimum(below[0], below[1]) if term.name == "and" else torch.maximum(below[0], below[1])

    def program(term: Any) -> Any:
        return value(rewritten(term, False))

    draw = random.Random(5)
    return _case(program, [_term(draw, 4) for _ in range(9)], 6)


# ---- Retrieval: the nearest of a memory until nothing new is found ----


def hops_of_retrieval() -> Case:
    def program(query: int, memory: Any) -> Any:
        state = QUERY(vector(query))
        used: list[int] = []
        for _ in range(4):
            found, best = -1, 0.0
            for at, word in enumerate(memory):
                if at in used:
                    continue
                score = torch.dot(state, vector(word)).item()
                if found < 0 or score > best:
                    found, best = at, score
            if found < 0 or best < 0.0:
                break
            used.append(found)
            state = torch.tanh(state + vector(memory[found]))
        return state, used

    given = [(words[0], words[1:]) for words in _words(6, 1, 8, 8)]
    return _case(program, given, 6)


# ---- A vote of nearest neighbours ----


def neighbours() -> Case:
    def program(query: Any, points: Any) -> Any:
        far = [(torch.sum((query - point) ** 2).item(), label) for point, label in points]
        near = sorted(far)[:3]
        votes: dict[str, float] = {}
        for distance, label in near:
            votes[label] = votes.get(label, 0.0) + 1.0 / (1.0 + distance)
        winner = max(votes.items(), key=lambda pair: pair[1])
        return winner[0] == "a", len(votes), math.sqrt(near[0][0])

    random_numbers = torch.Generator().manual_seed(7)

    def drawn() -> Any:
        return torch.randn(H, generator=random_numbers)

    given = [(drawn(), [(drawn(), "abc"[k % 3]) for k in range(2 + many)]) for many in range(7)]
    return _case(program, given)


# ---- The cheapest path, with an open list and learned costs ----


def cheapest_path() -> Case:
    def cost(left: int, right: int) -> float:
        return F.softplus(VALUE(merged(vector(left), vector(right)))).item()

    def program(edges: Any) -> Any:
        goal = len(edges) - 1
        ahead = [(0.0, 0)]
        costs = {0: 0.0}
        before = {0: -1}
        done: list[int] = []
        while ahead:
            own, node = min(ahead)
            ahead.remove((own, node))
            if node in done:
                continue
            done.append(node)
            if node == goal:
                break
            for below in edges[node]:
                total = own + cost(node, below)
                if total < costs.get(below, 1e9):
                    costs[below] = total
                    before[below] = node
                    ahead.append((total, below))
        path: list[int] = []
        at = goal if goal in before else -1
        while at >= 0:
            path.insert(0, at)
            at = before[at]
        return path, costs.get(goal, -1.0)

    draw = random.Random(8)
    graphs = [
        [sorted({draw.randrange(many) for _ in range(draw.randint(0, 3))}) for _ in range(many)]
        for many in (4, 5, 6, 7, 3, 8, 9)
    ]
    return _case(program, graphs)


# ---- Text that has to be in a trie, which the program builds ----


def constrained_text() -> Case:
    def program(words: Any, entries: Any) -> Any:
        trie: dict[int, Any] = {}
        for entry in entries:
            node = trie
            for word in entry:
                node = node.setdefault(word, {})
        state = torch.zeros(H)
        for word in words:
            state = CELL(vector(word), state)
        made: list[int] = []
        node = trie
        while len(node) > 0:
            scores = LOGITS(state).tolist()
            best = max(node, key=lambda word: scores[word])
            made.append(best)
            state = CELL(vector(best), state)
            node = node[best]
        return made, state

    entries = _words(9, 1, 4, 6)
    return _case(program, [(words, entries[: 1 + at]) for at, words in enumerate(_words(10))])


# ---- A draft that is checked: words are kept while the larger model agrees ----


def checked_draft() -> Case:
    def drafted(state: Any, count: int) -> Any:
        found: list[int] = []
        for _ in range(count):
            word = int(torch.argmax(ACTIONS(state)))
            found.append(word)
            state = torch.tanh(state + vector(word))
        return found

    def program(words: Any) -> Any:
        state = torch.zeros(H)
        for word in words:
            state = CELL(vector(word), state)
        made: list[int] = []
        rounds = 0
        while len(made) < 6 and rounds < 5:
            rounds += 1
            for word in drafted(state, 3):
                right = int(torch.argmax(LOGITS(state)))
                made.append(right)
                state = CELL(vector(right), state)
                if right != word:
                    break
        return made, rounds

    return _case(program, _words(11))


# ---- Thinking for as long as a gate says ----


def adaptive_steps() -> Case:
    def program(words: Any) -> Any:
        outputs = []
        ponder = 0.0
        state = torch.zeros(H)
        for word in words:
            left, mixed, steps = 1.0, torch.zeros(H), 0
            while True:
                state = CELL(vector(word), state)
                halt = torch.sigmoid(VALUE(state)).item()
                steps += 1
                if halt >= left - 0.01 or steps == 6:
                    mixed = mixed + state * left
                    break
                mixed = mixed + state * halt
                left -= halt
            ponder += steps + left
            outputs.append(mixed)
        return outputs, ponder

    return _case(program, _words(12))


# ---- The likeliest tags, with pointers back ----


def likeliest_tags() -> Case:
    moves = [[0.1, -0.4, 0.3], [0.0, 0.2, -0.1], [-0.5, 0.6, 0.0]]

    def program(words: Any) -> Any:
        scores = [0.0, -1.0, -2.0]
        back = []
        for _, word in enumerate(words, start=len(words)):
            own = torch.log_softmax(ACTIONS(vector(word)), dim=-1).tolist()
            pointers, ahead = [], []
            for tag in range(3):
                ways = [scores[old] + moves[old][tag] for old in range(3)]
                best = ways.index(max(ways))
                pointers.append(best)
                ahead.append(ways[best] + own[tag])
            back.append(pointers)
            scores = ahead
        tag = scores.index(max(scores))
        path = [tag]
        for pointers in reversed(back):
            tag = pointers[tag]
            path.append(tag)
        return path[::-1], max(scores)

    return _case(program, _words(13))


# ---- Edits between two texts, with learned costs, by rows ----


def edit_distance() -> Case:
    def program(left: Any, right: Any) -> Any:
        row = [float(k) for k in range(len(right) + 1)]
        for at, one in enumerate(left, 1):
            above, row = row, [float(at)]
            for k, other in enumerate(right):
                if one == other:
                    cost = above[k]
                else:
                    change = torch.sigmoid(VALUE(vector(one) - vector(other))).item()
                    cost = min(above[k] + change, above[k + 1] + 1.0, row[-1] + 1.0)
                row.append(cost)
        return row[-1], row

    pairs = list(zip(_words(14, 1, 4), _words(15, 0, 4), strict=True))
    return _case(program, pairs)


# ---- The two nearest clusters are merged until few are left ----


def clusters() -> Case:
    def program(words: Any) -> Any:
        groups = {at: (vector(word), [word]) for at, word in enumerate(words)}
        fresh = len(words)
        merges = []
        while len(groups) > 2:
            keys = list(groups)
            near = []
            for a in keys:
                for b in keys:
                    if a < b:
                        near.append((torch.dist(groups[a][0], groups[b][0]).item(), a, b))
            _, a, b = min(near)
            left, ours = groups.pop(a)
            right, theirs = groups.pop(b)
            groups[fresh] = ((left + right) / 2, ours + theirs)
            merges.append((a, b))
            fresh += 1
        return [center for center, _ in groups.values()], merges, [sorted(own) for _, own in groups.values()]

    return _case(program, [list(dict.fromkeys(words)) for words in _words(16, 1, 6)])


# ---- Nodes in the order of what they need, each state from those before ----


def topological_states() -> Case:
    def program(needs: Any) -> Any:
        left = {node: len(own) for node, own in enumerate(needs)}
        users: dict[int, list[int]] = {}
        for node, own in enumerate(needs):
            for one in own:
                users.setdefault(one, []).append(node)
        ready = [node for node, count in left.items() if count == 0]
        states: dict[int, Any] = {}
        order: list[int] = []
        while ready:
            node = ready.pop(0)
            order.append(node)
            state = vector(node % VOCAB)
            for one in needs[node]:
                state = merged(state, states[one])
            states[node] = state
            for user in users.get(node, []):
                left[user] -= 1
                if left[user] == 0:
                    ready.append(user)
        is_cyclic = len(order) < len(needs)
        return order, is_cyclic, [states[node] for node in order]

    graphs = [
        [[], [0], [0, 1]],
        [[]],
        [[1], [0], []],
        [[], [], [0, 1], [2], [2, 3]],
        [[3], [], [1], [2]],
        [[], [0], [1, 0]],
    ]
    return _case(program, graphs)


# ---- A transition parser with heads, legal actions alone ----


def transition_parser() -> Case:
    def program(words: Any) -> Any:
        stack: list[tuple[int, Any]] = []
        at = 0
        heads = {}
        actions = []
        while at < len(words) or len(stack) > 1:
            legal = []
            if at < len(words):
                legal.append(0)
            if len(stack) > 1:
                legal += [1, 2]
            summary = stack[-1][1] if stack else torch.zeros(H)
            scores = ACTIONS(summary).tolist()
            action = max(legal, key=lambda one: scores[one])
            actions.append(action)
            if action == 0:
                stack.append((at, vector(words[at])))
                at += 1
                continue
            top, below = stack.pop(), stack.pop()
            head, child = (below, top) if action == 1 else (top, below)
            heads[child[0]] = head[0]
            stack.append((head[0], merged(head[1], child[1])))
        return heads, actions, stack[0][1]

    return _case(program, _words(17, 1, 6, 8), 5)


# ---- A cache of answers over several questions, oldest first out ----


def cached_answers() -> Case:
    def program(questions: Any) -> Any:
        cache: dict[tuple[int, int], Any] = {}
        hits, answers = 0, []
        for left, right in questions:
            key = (min(left, right), max(left, right))
            if key in cache:
                hits += 1
                found = cache.pop(key)
            else:
                found = merged(vector(key[0]), vector(key[1]))
                if len(cache) >= 2:
                    del cache[next(iter(cache))]
            cache[key] = found
            answers.append(found)
        return answers, hits, list(cache)

    given = [list(zip(a, a[1:] + a[:1], strict=True)) for a in _words(18, 2, 7)]
    return _case(program, given)


PROGRAMS = {
    one.__name__: one
    for one in (
        precedence_parser,
        best_splits,
        alpha_beta,
        penalised_text,
        pushed_negations,
        hops_of_retrieval,
        neighbours,
        cheapest_path,
        constrained_text,
        checked_draft,
        adaptive_steps,
        likeliest_tags,
        edit_distance,
        clusters,
        topological_states,
        transition_parser,
        cached_answers,
    )
}
