"""Six training workloads, none with dropout: at sizes a CPU trains in a fraction of a second a step, or at a GPU's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, LAYERS = 4096, 256, 4, 4
BATCH, LENGTH = 4, 128
KEY_HEADS = 2
RESNET, IMAGES, PIXELS = "resnet18", 8, 64
CLICKS = 512

_LARGE = {"WIDTH": 768, "HEADS": 12, "LAYERS": 12, "BATCH": 8, "LENGTH": 1024}
#: Sizes for a GPU, by workload.
LARGE: dict[str, dict[str, int | str]] = {
    "nanogpt": {**_LARGE, "VOCABULARY": 50304},
    "gpt2": {**_LARGE, "VOCABULARY": 50257},
    "llama": {**_LARGE, "VOCABULARY": 32000, "WIDTH": 1024, "HEADS": 16, "KEY_HEADS": 4},
    "bert": {**_LARGE, "VOCABULARY": 30522, "BATCH": 32, "LENGTH": 512},
    "resnet": {"RESNET": "resnet50", "IMAGES": 64, "PIXELS": 224},
    "dlrm": {"CLICKS": 8192},
}


@dataclass
class Workload:
    """`loss(*batch)` runs the forward of `model`; calling it and `backward` on the result is the step."""

    model: nn.Module
    loss: Callable[..., Tensor]
    batch: tuple[Tensor, ...]


def build(name: str, large: bool = False) -> Workload:
    """The workload with weights and batch drawn from torch's current seed."""
    if large:
        globals().update(LARGE[name])
        DLRM.ROWS, DLRM.WIDTH, DLRM.TABLES = 100_000, 64, 26
    return WORKLOADS[name]()


# --- language models ---


def gpt2() -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=2 * LENGTH,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return language_model(GPT2LMHeadModel(config))


def llama() -> Workload:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=11 * WIDTH // 4,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=min(KEY_HEADS, HEADS),
    )
    return language_model(LlamaForCausalLM(config))


def bert() -> Workload:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return language_model(BertForMaskedLM(config))


def language_model(model: nn.Module) -> Workload:
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    return Workload(model, lambda tokens, labels: model(input_ids=tokens, labels=labels).loss, (tokens, tokens.clone()))


class NanoBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.merge(self.attend(*self.query_key_value(self.norm1(x)).chunk(3, -1)))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention written out: two products, a mask and a softmax."""
        query, key, value = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (query, key, value))
        length = query.shape[-2]
        visible = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
        scores = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~visible, -torch.inf)
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


class NanoGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(NanoBlock() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.token(tokens) + places)))


def nanogpt() -> Workload:
    model = NanoGPT()
    tokens, labels = torch.randint(VOCABULARY, (2, BATCH, LENGTH)).unbind()
    return Workload(model, lambda x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten()), (tokens, labels))


# --- vision and recommendation ---


def resnet() -> Workload:
    import torchvision

    model = getattr(torchvision.models, RESNET)()
    images, labels = torch.randn(IMAGES, 3, PIXELS, PIXELS), torch.randint(1000, (IMAGES,))
    return Workload(model, lambda x, y: F.cross_entropy(model(x), y), (images, labels))


class DLRM(nn.Module):
    """Click prediction: tables of embeddings and a dense tower meet in pairwise products."""

    ROWS, WIDTH, TABLES, DENSE = 5000, 32, 8, 13

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(self.ROWS, self.WIDTH) for _ in range(self.TABLES))
        self.dense = nn.Sequential(*tower(self.DENSE, 512, 256, self.WIDTH), nn.ReLU())
        vectors = self.TABLES + 1
        self.top = nn.Sequential(*tower(self.WIDTH + vectors * (vectors - 1) // 2, 1024, 512, 1))
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1))

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        bottom = self.dense(dense)
        vectors = [bottom, *(table(column) for table, column in zip(self.tables, indices.unbind(1)))]
        stacked = torch.stack(vectors, 1)
        products = (stacked @ stacked.mT)[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, products], 1)).squeeze(1)


def tower(*widths: int) -> list[nn.Module]:
    """Linear layers of these widths with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


def dlrm() -> Workload:
    model, batch = DLRM(), CLICKS
    clicks = torch.randint(2, (batch,)).float()
    inputs = torch.randn(batch, DLRM.DENSE), torch.randint(DLRM.ROWS, (batch, DLRM.TABLES)), clicks
    return Workload(model, lambda d, i, y: F.binary_cross_entropy_with_logits(model(d, i), y), inputs)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "nanogpt": nanogpt,
    "gpt2": gpt2,
    "llama": llama,
    "bert": bert,
    "resnet": resnet,
    "dlrm": dlrm,
}
