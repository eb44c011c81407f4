"""A character-level GPT in plain PyTorch: nothing in it knows of Permalloy."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 4
WIDTH = 256
HEADS = 4
CONTEXT = 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.projection(self.attention(self.attention_norm(x)))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        scores = query @ key.transpose(-2, -1) * (width // HEADS) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(batch, length, width)


class GPT(nn.Module):
    """Logits `[batch, length, vocabulary]` for tokens `[batch, length]`, `length` at most `CONTEXT`."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.apply(initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(positions))))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


def initialise(module: nn.Module) -> None:
    """GPT-2's: normal weights of deviation 0.02, zero biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


@torch.no_grad()
def generate(model: GPT, prompt: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """`prompt` `[n]` continued by `length` tokens sampled at temperature 0.8."""
    tokens = prompt
    for _ in range(length):
        logits = model(tokens[-CONTEXT:].unsqueeze(0))[0, -1]
        following = torch.multinomial((logits / 0.8).softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, following])
    return tokens
