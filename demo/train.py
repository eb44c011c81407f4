"""Trains the GPT with one backend and leaves what happened in a file; `main.py` runs it once for each row of its table.

usage: train.py BACKEND OUTPUT [--steps N] [--batch N] [--seed N] [--write N]
BACKEND: eager, fp64 (eager in double precision, first gradients only), or any backend of torch.compile
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import corpus
import torch
from model import CONTEXT, GPT, generate
from torch import Tensor

PROMPT = "def "


def train(
    backend: str, steps: int, batch: int, seed: int, write: int, progress: Callable[[int, float], None]
) -> dict[str, object]:
    """Times, losses and first gradients of `steps` steps, and `write` characters of what the model then writes."""
    torch.manual_seed(seed)
    text = corpus.load()
    model = GPT(len(text.alphabet))
    if backend == "fp64":
        model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    step = model.loss if backend in ("eager", "fp64") else torch.compile(model.loss, backend=backend)
    draws = torch.Generator().manual_seed(seed)

    seconds: list[float] = []
    losses: list[float] = []
    gradients: dict[str, Tensor] = {}
    for number in range(steps):
        tokens, targets = text.batch(batch, CONTEXT, draws)
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = step(tokens, targets)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
        if number == 0:
            gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
        warm_up.step()
        losses.append(loss.item())
        progress(number + 1, losses[-1])
    # Before generating: sampling is not what is measured.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    result: dict[str, object] = {"gradients": gradients, "losses": losses}
    if backend != "fp64":
        sampled = generate(model.eval(), text.encode(PROMPT), write, torch.Generator().manual_seed(seed))
        # The first steps of a compiled run still compile and warm caches.
        steady = statistics.median(seconds[min(3, steps - 1) :])
        result |= {
            "first_s": seconds[0],
            "step_ms": 1e3 * steady,
            "tokens_per_s": batch * CONTEXT / steady,
            "peak_mb": peak / 2**20,
            "text": text.decode(sampled),
        }
    if backend == "permalloy":
        result["routes"] = routes()
    return result


def routes() -> dict[str, int]:
    """How many operators took each route; those of a graph that was left to PyTorch count as `left to PyTorch`."""
    import permalloy

    counts: Counter[str] = Counter()
    for record in permalloy.records():
        if record.compiled:
            counts.update(decision["route"].split(":")[0] for decision in record.decisions)
        else:
            counts["left to PyTorch"] += record.nodes
    return dict(counts)


def progress_bar(label: str, steps: int) -> Callable[[int, float], None]:
    """A line that redraws itself on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda done, loss: None

    def draw(done: int, loss: float) -> None:
        filled = 30 * done // steps
        bar = "#" * filled + "." * (30 - filled)
        end = "\n" if done == steps else ""
        print(f"\r{label:<12} [{bar}] {done:>3}/{steps}  loss {loss:.3f}", end=end, file=sys.stderr, flush=True)

    print(f"\r{label:<12} [{'.' * 30}]   0/{steps}", end="", file=sys.stderr, flush=True)
    return draw


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("backend")
    parser.add_argument("output", type=Path)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=int, default=240, help="characters to generate")
    options = parser.parse_args()
    bar = progress_bar(options.backend, options.steps)
    result = train(options.backend, options.steps, options.batch, options.seed, options.write, bar)
    torch.save(result, options.output)


if __name__ == "__main__":
    main()
