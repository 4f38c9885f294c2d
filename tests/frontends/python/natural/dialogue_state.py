"""A dialogue state tracker: an Enum's state machine, belief tensors in a dict, slots with gates, and a policy that answers text."""
from __future__ import annotations

import abc
import collections
import enum
import logging
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import dietcode

H = 12
logging.getLogger("dialogue").setLevel(logging.ERROR)


class State(enum.Enum):
    GREET = enum.auto()
    ASK = enum.auto()
    CONFIRM = enum.auto()
    DONE = enum.auto()


class Flag(enum.Flag):
    NONE = 0
    FILLED = 1
    CHANGED = 2


SLOTS = {"food": ["thai", "greek", "any"], "area": ["north", "south"], "price": ["cheap", "dear"]}
TOKENS = {w: i for i, w in enumerate(sorted({v for vs in SLOTS.values() for v in vs} | set("hi yes no i want food in the please bye".split())))}


class Tracker(nn.Module, abc.ABC):
    registry: ClassVar[dict[str, type[Tracker]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Tracker.registry[cls.__name__.lower()] = cls

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(TOKENS) + 1, H)
        self.values = nn.ModuleDict({slot: nn.Embedding(len(values), H) for slot, values in SLOTS.items()})
        self.gates = nn.ModuleDict({slot: nn.Linear(2 * H, 3) for slot in SLOTS})

    @abc.abstractmethod
    def utterance(self, ids: list[int]) -> Tensor: ...

    def update(self, belief: dict[str, Tensor], text: str) -> dict[str, Flag]:
        ids = [TOKENS.get(w, len(TOKENS)) for w in text.split()]
        u = self.utterance(ids)
        flags = {}
        for slot, old in belief.items():
            logits = self.values[slot].weight @ u
            for k, value in enumerate(SLOTS[slot]):
                if value in text:
                    logits[k] += 5.0
            gate = self.gates[slot](torch.cat([u, self.values[slot].weight.t() @ old]))
            match ("none", "dontcare", "carry")[int(gate.argmax())]:
                case "none" if not any(v in text for v in SLOTS[slot]):
                    new = old
                case "carry":
                    new = 0.5 * old + 0.5 * logits.softmax(0)
                case _:
                    new = logits.softmax(0)
            flag = Flag.FILLED if new.max() > 0.6 else Flag.NONE
            if new.argmax() != old.argmax():
                flag |= Flag.CHANGED
            belief[slot], flags[slot] = new, flag
        return flags


class Bag(Tracker):
    def utterance(self, ids):
        return torch.stack([self.tokens.weight[i] for i in ids]).mean(dim=0) if ids else torch.zeros(H)


class Recurrent(Tracker):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNNCell(H, H)

    def utterance(self, ids):
        h = torch.zeros(H)
        for i in ids:
            h = self.rnn(self.tokens(torch.LongTensor([i])).squeeze(0), h)
        return h


class Dialogue:
    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.state = tracker, State.GREET
        self.belief = {slot: torch.full((len(v),), 1 / len(v)) for slot, v in SLOTS.items()}
        self.history: collections.deque[str] = collections.deque(maxlen=3)
        self.flags: dict[str, Flag] = {}

    def turn(self, text: str) -> str:
        self.history.append(text)
        handler = getattr(self, f"on_{self.state.name.lower()}")
        reply = handler(text)
        logging.getLogger("dialogue").info("%s -> %s: %s", text, self.state, reply)
        return reply

    def on_greet(self, text):
        self.state = State.ASK
        return self.on_ask(text) if text != "hi" else "hello, what do you want?"

    def on_ask(self, text):
        self.flags = self.tracker.update(self.belief, text)
        missing = [s for s, f in self.flags.items() if not f & Flag.FILLED]
        if missing:
            return f"which {missing[0]}?"
        self.state = State.CONFIRM
        return " ".join(self.best(s) for s in SLOTS) + "?"

    def on_confirm(self, text):
        if "yes" in text:
            self.state = State.DONE
            return "booked"
        self.state = State.ASK
        return self.on_ask(text)

    def on_done(self, text):
        raise StopIteration("the dialogue has ended")

    def best(self, slot):
        return SLOTS[slot][self.belief[slot].argmax()]


torch.manual_seed(5)
trackers = nn.ModuleDict({name: cls() for name, cls in Tracker.registry.items()}).eval()


@dietcode.program
def talk(kind: str, turns: list[str]) -> dict[str, Any]:
    dialogue = Dialogue(trackers[kind])
    replies = []
    for text in turns:
        try:
            replies.append(dialogue.turn(text))
        except StopIteration as end:
            replies.append(f"({end})")
            break
    return {"replies": replies, "state": dialogue.state, "belief": dialogue.belief, "flags": dialogue.flags, "history": dialogue.history}


TURNS = [
    ["hi", "i want thai food", "north", "cheap please", "yes"],
    ["thai north cheap", "yes", "bye"],
    ["i want greek food in the south", "dear", "no thai", "yes"],
    ["hi", "any food", "no", "north"],
    [],
    ["greek south dear", "yes", "yes", "yes"],
    ["unknown words", "", "cheap cheap thai thai north"],
]
PROGRAMS = [
    (talk, lambda: [("bag", TURNS[0]), ("recurrent", TURNS[0]), ("bag", TURNS[1]), ("recurrent", TURNS[2]), ("bag", TURNS[3])],
     lambda: [(k, t) for t in TURNS[3:] for k in ("recurrent", "bag")] + [("lstm", ["hi"])]),
]
