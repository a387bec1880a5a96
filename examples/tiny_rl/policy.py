"""The policy: a small causal transformer, trained from scratch, that writes a program token by token.

Its input is one fixed line: the operator, the turn, and of the previous turn the program, its outcome and its reward.
Its output follows. One position is one token; only programs that ended early are padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grammar
import torch
from problem import OPERATORS
from torch import Tensor, nn
from torch.nn import functional as F

OUTCOMES = ("CORRECT", "INCORRECT", "REJECTED", "COMPILE_ERROR", "RUNTIME_ERROR", "TIMEOUT", "OUT_OF_MEMORY", "INVALID")
#: Upper ends of the buckets in which a policy is told its last reward.
BUCKETS = (0.25, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
TURNS = ("turn_1", "turn_2", "turn_3")
PAD = "pad"
VOCABULARY = (
    *grammar.WORDS,
    PAD,
    *OPERATORS,
    *TURNS,
    *(f"was_{outcome}" for outcome in OUTCOMES),
    *(f"earned_{bucket}" for bucket in range(len(BUCKETS) + 1)),
)
_INDEX = {word: index for index, word in enumerate(VOCABULARY)}
_END = _INDEX[grammar.END]
_WRITABLE = len(grammar.WORDS)
#: Operator, turn, last program, outcome, reward.
PROMPT = 4 + grammar.LONGEST


@dataclass(frozen=True, slots=True)
class Past:
    """Information in a prompt about the previous turn."""

    words: tuple[str, ...]
    outcome: str
    reward: float


def prompt(operator: str, turn: int, past: Past | None) -> list[int]:
    """Return the PROMPT tokens of the prompt. They do not tell the hidden size."""
    if past is None:
        told = [PAD] * (grammar.LONGEST + 2)
    else:
        bucket = sum(past.reward >= bound for bound in BUCKETS)
        filler = [PAD] * (grammar.LONGEST - len(past.words))
        told = [*past.words, *filler, f"was_{past.outcome}", f"earned_{bucket}"]
    return [_INDEX[word] for word in (operator, TURNS[turn], *told)]


def say_prompt(tokens: Sequence[int]) -> str:
    """Return a prompt as text, for records."""
    return " ".join(VOCABULARY[token] for token in tokens)


def read_prompt(text: str) -> list[int]:
    """Return the tokens of a prompt that `say_prompt` wrote. Raises ValueError for any other text."""
    words = text.split()
    if unknown := [word for word in words if word not in _INDEX]:
        raise ValueError(f"{unknown[0]!r} is no word of the policy")
    if len(words) != PROMPT or words[0] not in OPERATORS or words[1] not in TURNS:
        raise ValueError(f"{len(words)} words; a prompt has {PROMPT}, an operator and a turn first")
    return [_INDEX[word] for word in words]


def encode(words: Sequence[str]) -> list[int]:
    """Return the tokens of a program, LONGEST of them."""
    return [_INDEX[word] for word in (*words, *[PAD] * (grammar.LONGEST - len(words)))]


def decode(tokens: Sequence[int]) -> tuple[str, ...]:
    """Return the written words, up to and including the end if there is one."""
    words = [VOCABULARY[token] for token in tokens]
    return tuple(words[: words.index(grammar.END) + 1] if grammar.END in words else words)


def written(responses: Tensor) -> Tensor:
    """Return a mask (R, LONGEST) of the tokens up to and including the first end."""
    ended = (responses == _END).cumsum(dim=1)
    return (ended == 0) | ((ended == 1) & (responses == _END))


def _allowed(responses: Tensor) -> Tensor:
    """Return a mask (R, LONGEST, words) of the words that the grammar allows, by first word and place."""
    allowed = _FOLLOWING.to(responses.device)[responses[:, 0].clamp(max=len(grammar.KINDS) - 1)]
    allowed[:, 0] = False
    allowed[:, 0, : len(grammar.KINDS)] = True
    return allowed


def _following() -> Tensor:
    """Return a mask (kinds, LONGEST, words) of the allowed words. After the end only the end may follow."""
    table = torch.zeros(len(grammar.KINDS), grammar.LONGEST, _WRITABLE, dtype=torch.bool)
    for kind, name in enumerate(grammar.KINDS):
        words = [name]
        for place in range(1, grammar.LONGEST):
            after = grammar.following(words) or (grammar.END,)
            table[kind, place, [_INDEX[word] for word in after]] = True
            words.append(after[0])
    return table


_FOLLOWING = _following()
#: Logit of a forbidden word. Minus infinity would make the entropy NaN (0 times infinity).
_NEVER = -1e9


class Policy(nn.Module):
    """A transformer of pre-norm blocks with learned positions; about 230,000 parameters.

    Args:
        masked: give probability 0 to tokens that the grammar does not allow. Otherwise the policy can write ill-formed
            programs, and must learn not to.
    """

    def __init__(self, width: int = 96, layers: int = 2, heads: int = 4, *, masked: bool = False) -> None:
        super().__init__()
        self.masked = masked
        self.token = nn.Embedding(len(VOCABULARY), width)
        self.position = nn.Embedding(PROMPT + grammar.LONGEST, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _WRITABLE)

    def log_probs(self, prompts: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each written token and the entropy of each choice, both (R, LONGEST)."""
        logits = self._logits(torch.cat([prompts, responses], dim=1)[:, :-1])[:, -grammar.LONGEST :]
        if self.masked:
            logits = logits.masked_fill(~_allowed(responses), _NEVER)
        every = torch.log_softmax(logits, dim=-1)
        return every.gather(-1, responses.clamp(max=_WRITABLE - 1)[..., None])[..., 0], -(every.exp() * every).sum(-1)

    @torch.no_grad()
    def sample(self, prompts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Write one program for each prompt; return tokens and their log-probabilities, both (R, LONGEST).

        Keys and values are cached, as in an inference engine, so the computation differs from that of `log_probs`.
        """
        caches = [_Cache() for _ in self.blocks]
        logits = self._logits(prompts, caches)[:, -1]
        tokens = torch.empty(len(prompts), 0, dtype=torch.long, device=prompts.device)
        chosen = []
        for step in range(grammar.LONGEST):
            if self.masked:
                padded = F.pad(tokens, (0, grammar.LONGEST - step))
                logits = logits.masked_fill(~_allowed(padded)[:, step], _NEVER)
            every = torch.log_softmax(logits, dim=-1)
            token = torch.multinomial(every.exp(), 1, generator=generator)
            tokens = torch.cat([tokens, token], dim=1)
            chosen.append(every.gather(-1, token))
            if step < grammar.LONGEST - 1:
                logits = self._logits(token, caches, at=PROMPT + step)[:, -1]
        return tokens, torch.cat(chosen, dim=1)

    def _logits(self, tokens: Tensor, caches: list[_Cache] | None = None, at: int = 0) -> Tensor:
        positions = torch.arange(at, at + tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches else None)
        logits: Tensor = self.head(self.norm(x))
        return logits


class _Cache:
    """Keys and values of one block, for all positions so far."""

    def __init__(self) -> None:
        self.keys = self.values = torch.empty(0)

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys.numel():
            keys, values = torch.cat([self.keys, keys], dim=2), torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, cache: _Cache | None) -> Tensor:
        rows, length, width = x.shape
        parts = self.project(self.before_attention(x)).view(rows, length, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        x = x + self.merge(seen.transpose(1, 2).reshape(rows, length, width))
        after: Tensor = x + self.mlp(self.before_mlp(x))
        return after
