"""The training text: the source of the Python standard library that runs this."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

MEGABYTES = 4


@dataclass(frozen=True)
class Corpus:
    """`tokens` `[n]` index `alphabet`."""

    alphabet: str
    tokens: Tensor
    files: int

    def batch(self, size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random windows `[size, length]`, and the same windows one character on."""
        starts = torch.randint(0, len(self.tokens) - length - 1, (size, 1), generator=generator)
        windows = self.tokens[starts + torch.arange(length + 1)]
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def encode(self, text: str) -> Tensor:
        return torch.tensor([self.alphabet.index(character) for character in text])

    def decode(self, tokens: Tensor) -> str:
        return "".join(self.alphabet[token] for token in tokens.tolist())


def load() -> Corpus:
    """The first megabytes of the library's modules, in order of name; printable ASCII and line ends only."""
    alphabet = "\n" + "".join(map(chr, range(32, 127)))
    table = torch.full((256,), -1, dtype=torch.int64)
    table[torch.tensor(list(alphabet.encode()))] = torch.arange(len(alphabet))
    text, files = bytearray(), 0
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        if len(text) >= MEGABYTES << 20:
            break
        text += path.read_bytes()
        files += 1
    tokens = table[torch.frombuffer(text, dtype=torch.uint8).long()]
    return Corpus(alphabet, tokens[tokens >= 0], files)
