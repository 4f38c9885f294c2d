"""A GPT that decodes with a growing key-value cache: prompts of any length, rotary positions, stop tokens, repetition penalty."""
import dataclasses
import functools
from typing import Callable, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 16
    dim: int = 16
    heads: int = 2
    layers: int = 2
    max_len: int = 32

    @property
    def head_dim(self):
        return self.dim // self.heads


@functools.lru_cache(maxsize=64)
def rotation(position: int, dim: int):
    freqs = position / (100.0 ** (torch.arange(0, dim, 2).float() / dim))
    return freqs.cos(), freqs.sin()


def rotate(x, position):
    cos, sin = rotation(position, x.shape[-1])
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class KVCache:
    def __init__(self):
        self.k: Optional[torch.Tensor] = None
        self.v: Optional[torch.Tensor] = None

    def append(self, k, v):
        k, v = k.unsqueeze(1), v.unsqueeze(1)
        if self.k is None:
            self.k, self.v = k, v
        else:
            self.k = torch.cat([self.k, k], dim=1)
            self.v = torch.cat([self.v, v], dim=1)
        return self.k, self.v

    def __len__(self):
        return 0 if self.k is None else self.k.size(1)


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.ln1, self.ln2 = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.proj = nn.Linear(config.dim, config.dim)
        self.mlp = nn.Sequential(nn.Linear(config.dim, 2 * config.dim), nn.GELU(), nn.Linear(2 * config.dim, config.dim), nn.Dropout(0.1))

    def attention(self, x, cache):
        q, k, v = (t.view(self.config.heads, -1) for t in self.qkv(x).chunk(3, dim=-1))
        position = len(cache)
        keys, values = cache.append(rotate(k, position), v)
        scores = torch.einsum("hd,htd->ht", rotate(q, position), keys) / self.config.head_dim ** 0.5
        return self.proj(torch.einsum("ht,htd->hd", scores.softmax(-1), values).reshape(-1))

    def forward(self, x, cache):
        x = x + self.attention(self.ln1(x), cache)
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.dim)

    def forward(self, token: int, caches):
        x = self.wte(torch.tensor(token))
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache)
        return self.ln_f(x) @ self.wte.weight.t()

    def generate(self, prompt, max_new_tokens=8, stop: tuple = (0,), penalty: float = 1.3, callback: Optional[Callable] = None):
        if len(prompt) + max_new_tokens > self.config.max_len:
            raise ValueError(f"{len(prompt)} + {max_new_tokens} tokens do not fit {self.config.max_len}")
        caches = [KVCache() for _ in self.blocks]
        logits = None
        for token in prompt:
            logits = self(token, caches)
        out, logprobs = list(prompt), []
        for _ in range(max_new_tokens):
            scores = logits.clone()
            for seen in set(out):
                scores[seen] = scores[seen] / penalty if scores[seen] > 0 else scores[seen] * penalty
            token = scores.argmax().item()
            logprobs.append(F.log_softmax(scores, -1)[token].item())
            out.append(token)
            if callback:
                callback(token, len(caches[0]))
            if token in stop:
                break
            logits = self(token, caches)
        return out, logprobs, caches[-1].k.shape


torch.manual_seed(0)
gpt = GPT(Config()).eval()


@dietcode.program
def complete(prompt, **options):
    tokens, logprobs, shape = gpt.generate(prompt, **options)
    return tokens, sum(logprobs), tuple(shape)


@dietcode.program
def streamed(prompt, budget=4, stop_words=()):
    pieces, log = [], []
    callback = functools.partial(lambda sink, token, size: sink.append(f"{token}@{size}"), pieces)
    try:
        gpt.generate(prompt, budget, stop=tuple(stop_words), callback=callback)
    except (ValueError, TypeError) as error:
        log.append(str(error))
    return ",".join(pieces), log


PROGRAMS = [
    (complete, lambda: [[1], [2, 3], [5, 9, 4], [7, 7, 7, 7]], lambda: [[3, 1, 4, 1, 5, 9], [15], list(range(1, 16)) * 2]),
    (streamed, lambda: [[1], [2, 3], [5, 9, 4]], lambda: [[8, 8], ([4], 6), ([6, 2], 6, (9, 10, 11)), ([1] * 30, 6), []]),
]
