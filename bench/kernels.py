"""Throughput of fused kernels: eager, Inductor and Permalloy interleaved in one process.

usage: kernels.py [--backends eager,inductor,permalloy] [--sizes 1,16,256] [--only NAMES] [--seconds S] [--json FILE]

Sizes are megabytes of input. Every backend compiles a kernel once for each size. Its results are then compared with
double precision, and only then is it timed: in rounds in which each backend runs once, in rotating order, so that whatever
else the machine does meets all of them. Figures are medians; ratios are medians of the ratios within a round.
GB/s counts each input read once and each output written once: more traffic than that is the backend's own affair.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
WIDTH = 1024
VOCABULARY = 4096
TARGET_GEOMEAN, TARGET_EACH = 1.5, 1.0


@dataclass
class Case:
    """`run(*inputs)` returns a tensor or several; with `in_place` the results are the inputs of those positions."""

    run: Callable[..., object]
    inputs: list[Tensor]
    in_place: tuple[int, ...] = ()

    def results(self, run: Callable[..., object], inputs: list[Tensor]) -> list[Tensor]:
        out = run(*inputs)
        if self.in_place:
            return [inputs[i] for i in self.in_place]
        return [out] if isinstance(out, Tensor) else list(out)

    def bytes(self) -> int:
        outputs = self.results(self.run, [x.clone() for x in self.inputs])
        return sum(x.numel() * x.element_size() for x in [*self.inputs, *outputs])


# --- the kernels; `mb` megabytes of float32 input each ---


def floats(mb: float, columns: int) -> Tensor:
    return torch.randn(max(1, int(mb * 2**20) // 4 // columns), columns)


def bias_gelu(mb: float) -> Case:
    return Case(lambda x, bias: F.gelu(x + bias, approximate="tanh"), [floats(mb, WIDTH), torch.randn(WIDTH)])


def softmax(mb: float) -> Case:
    return Case(lambda x: x.softmax(-1), [floats(mb, WIDTH)])


def layer_norm(mb: float) -> Case:
    return Case(
        lambda x, weight, bias: aten.native_layer_norm(x, [WIDTH], weight, bias, 1e-5),
        [floats(mb, WIDTH), torch.randn(WIDTH), torch.randn(WIDTH)],
    )


def layer_norm_backward(mb: float) -> Case:
    gradient, x, weight, bias = floats(mb / 2, WIDTH), floats(mb / 2, WIDTH), torch.randn(WIDTH), torch.randn(WIDTH)
    _, mean, rstd = aten.native_layer_norm(x, [WIDTH], weight, bias, 1e-5)
    return Case(
        lambda gradient, x, mean, rstd, weight, bias: aten.native_layer_norm_backward(
            gradient, x, [WIDTH], mean, rstd, weight, bias, [True, True, True]
        ),
        [gradient, x, mean, rstd, weight, bias],
    )


def cross_entropy(mb: float) -> Case:
    logits = floats(mb, VOCABULARY)
    return Case(F.cross_entropy, [logits, torch.randint(VOCABULARY, logits.shape[:1])])


def cross_entropy_backward(mb: float) -> Case:
    log_probabilities = floats(mb, VOCABULARY).log_softmax(-1)
    target = torch.randint(VOCABULARY, log_probabilities.shape[:1])
    weight = torch.tensor(float(len(target)))

    def run(gradient: Tensor, log_probabilities: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        nll = aten.nll_loss_backward(gradient, log_probabilities, target, None, 1, -100, weight)
        return aten._log_softmax_backward_data(nll, log_probabilities, 1, log_probabilities.dtype)

    return Case(run, [torch.tensor(1.0), log_probabilities, target, weight])


def embedding_backward(mb: float) -> Case:
    gradient = floats(mb, 256)
    rows = max(64, len(gradient) // 2)
    return Case(
        lambda gradient, index: aten.embedding_dense_backward(gradient, index, rows, -1, False),
        [gradient, torch.randint(rows, gradient.shape[:1])],
    )


def adamw(mb: float) -> Case:
    """The operators of `torch.optim.AdamW` on one parameter, in their order."""
    weight, gradient, mean, square = (floats(mb / 4, WIDTH) for _ in range(4))

    def run(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> None:
        rate, beta1, beta2, step = 1e-3, 0.9, 0.999, 10
        weight.mul_(1 - rate * 0.01)
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = (square.sqrt() / math.sqrt(1 - beta2**step)).add_(1e-8)
        weight.addcdiv_(mean, denominator, value=-rate / (1 - beta1**step))

    return Case(run, [weight, gradient, mean, square.abs_()], in_place=(0, 2, 3))


KERNELS = {
    "bias + gelu": bias_gelu,
    "softmax": softmax,
    "layer norm": layer_norm,
    "layer norm backward": layer_norm_backward,
    "cross entropy": cross_entropy,
    "cross entropy backward": cross_entropy_backward,
    "embedding backward": embedding_backward,
    "adamw": adamw,
}

# --- measuring ---


def compile_for(backend: str, run: Callable[..., object]) -> Callable[..., object]:
    return run if backend == "eager" else torch.compile(run, backend=backend, dynamic=False, fullgraph=True)


def errors(case: Case, runs: dict[str, Callable[..., object]]) -> dict[str, float]:
    """Worst `‖y − y64‖ / ‖y64‖` over the results, for each backend."""
    doubles = [x.double() if x.is_floating_point() else x.clone() for x in case.inputs]
    exact = case.results(case.run, doubles)
    found = {}
    for backend, run in runs.items():
        got = case.results(run, [x.clone() for x in case.inputs])
        found[backend] = max(((y.double() - e).norm() / e.norm()).item() for y, e in zip(got, exact, strict=True))
    return found


def measure(case: Case, runs: dict[str, Callable[..., object]], seconds: float) -> dict[str, list[float]]:
    """Seconds for one call, for each backend, one entry a round."""
    inputs = {backend: [x.clone() for x in case.inputs] for backend in runs}
    for backend, run in runs.items():
        run(*inputs[backend])
    started = time.perf_counter()
    for backend, run in runs.items():
        run(*inputs[backend])
    once = (time.perf_counter() - started) / len(runs)
    repeats = max(1, round(1e-3 / once))  # a sample is at least a millisecond, well above the clock's grain
    times: dict[str, list[float]] = {backend: [] for backend in runs}
    order = list(runs)
    deadline = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < deadline or len(times[order[0]]) < 7:
        order.append(order.pop(0))
        for backend in order:
            run, arguments = runs[backend], inputs[backend]
            # Untimed once: what the backend before has left in the caches, and in memory that two of them share, is no
            # gain or loss of this one's.
            run(*arguments)
            started = time.perf_counter()
            for _ in range(repeats):
                run(*arguments)
            times[backend].append((time.perf_counter() - started) / repeats)
    return times


@dataclass
class Row:
    kernel: str
    mb: float
    gigabytes: float
    seconds: dict[str, float]
    over: dict[str, dict[str, float]]
    """`over[a][b]`: how many times as fast `b` is as `a`."""
    error: dict[str, float]
    wrong: list[str]


@torch.no_grad()
def rows(kernels: list[str], sizes: list[float], backends: list[str], seconds: float) -> Iterator[Row]:
    for kernel in kernels:
        for mb in sizes:
            torch.manual_seed(0)
            torch._dynamo.reset()
            case = KERNELS[kernel](mb)
            runs = {backend: compile_for(backend, case.run) for backend in backends}
            error = errors(case, {"eager": case.run} | runs)
            # The contract of ARCHITECTURE.md: twice eager's own error and one unit in the last place.
            limit = 2 * error["eager"] + torch.finfo(torch.float32).eps
            wrong = [backend for backend in backends if not error[backend] <= limit]
            times = measure(case, runs, seconds)
            over = {
                base: {
                    b: statistics.median(x / y for x, y in zip(times[base], times[b])) for b in backends if b != base
                }
                for base in backends
            }
            medians = {backend: statistics.median(t) for backend, t in times.items()}
            yield Row(kernel, mb, case.bytes() / 1e9, medians, over, error, wrong)


# --- reporting ---


def header(backends: list[str]) -> str:
    cells = [f"{'kernel':<23}{'MB':>5}"]
    for backend in backends:
        cells.append(f"{backend + ' ms':>13}{'GB/s':>7}")
        cells += [f"{'× ' + base:>11}" for base in peers(backend, backends)]
    return "".join(cells)


def line(row: Row, backends: list[str]) -> str:
    cells = [f"{row.kernel:<23}{row.mb:>5g}"]
    for backend in backends:
        seconds = row.seconds[backend]
        cells.append(f"{1e3 * seconds:>13.3f}{row.gigabytes / seconds:>7.1f}")
        cells += [f"{row.over[base][backend]:>11.2f}" for base in peers(backend, backends)]
    return "".join(cells) + (f"   WRONG: {', '.join(row.wrong)}" if row.wrong else "")


def peers(backend: str, backends: list[str]) -> list[str]:
    """Whom a backend is compared with: those named before it."""
    return backends[: backends.index(backend)]


def geomeans(done: list[Row], backends: list[str]) -> str:
    cells = [f"{'geometric mean':<28}"]
    for backend in backends:
        cells.append(" " * 20)
        for base in peers(backend, backends):
            cells.append(f"{statistics.geometric_mean(row.over[base][backend] for row in done):>11.2f}")
    return "".join(cells)


def verdict(done: list[Row], backend: str) -> str:
    ratios = [row.over["eager"][backend] for row in done]
    mean, least = statistics.geometric_mean(ratios), min(ratios)
    held = mean >= TARGET_GEOMEAN and least >= TARGET_EACH
    return (
        f"{backend}: {mean:.2f} × eager (target {TARGET_GEOMEAN}), slowest row {least:.2f} × (target {TARGET_EACH}): "
        f"{'pass' if held else 'fail'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--backends", default="eager,inductor,permalloy")
    parser.add_argument("--sizes", default="1,16,256")
    parser.add_argument("--only", default=",".join(KERNELS))
    parser.add_argument("--seconds", type=float, default=1.0, help="measuring time for each backend of a row")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    backends, kernels = options.backends.split(","), options.only.split(",")
    unknown = [b for b in backends if b != "eager" and b not in torch._dynamo.list_backends(exclude_tags=())]
    if unknown:
        sys.exit(f"bench: no such backend: {', '.join(unknown)} (is it installed? `make setup`)")
    if set(kernels) - set(KERNELS):
        sys.exit(f"bench: no such kernel; there are: {', '.join(KERNELS)}")

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; a × column is how many times as fast\n")
    print(header(backends), flush=True)
    done = []
    for row in rows(kernels, [float(s) for s in options.sizes.split(",")], backends, options.seconds):
        print(line(row, backends), flush=True)
        done.append(row)
    print(geomeans(done, backends))
    if "eager" in backends:
        print()
        for backend in backends:
            if backend != "eager":
                print(verdict(done, backend))
    if options.json:
        options.json.write_text(json.dumps([vars(row) for row in done], indent=1) + "\n")
    wrong = [f"{row.kernel} at {row.mb:g} MB ({', '.join(row.wrong)})" for row in done if row.wrong]
    if wrong:
        sys.exit(
            f"bench: FAILED: results differ from double precision by more than twice eager's error: {'; '.join(wrong)}"
        )


if __name__ == "__main__":
    main()
