"""Trains the same small GPT eagerly and compiled, prints one table, and fails if the gradients disagree.

usage: main.py [--backend NAME] [--steps N] [--batch N] [--seed N] [--write N]

Each run has a process of its own, so that its peak memory is its own; both draw the same weights and batches from the
seed. A third, in double precision, computes the first step's gradients once more: they say how exact the others are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import corpus
import torch
from model import CONTEXT, LAYERS, WIDTH

# Eager's own worst relative error here is about 5e-7: the rounding of float32, a few times over. A compiled step rounds in
# other places, so it may be some times that; a gradient that is wrong is off by thousands of times that.
TOLERANCE = 10

COLUMNS = ["", "first step s", "median step ms", "tokens/s", "peak MB", "loss after {steps}", "step 1 gradient error"]


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--backend", default="permalloy")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=int, default=240, help="characters to generate")
    options = parser.parse_args()

    text = corpus.load()
    say(
        f"{len(text.tokens) / 2**20:.1f} million characters from {text.files} modules of the Python "
        f"{sys.version_info.major}.{sys.version_info.minor} standard library"
    )
    say(
        f"GPT of {LAYERS} layers, width {WIDTH}, context {CONTEXT}; batch {options.batch}, {options.steps} steps; "
        f"torch {metadata.version('torch')}, {torch.get_num_threads()} threads"
    )

    say("exact gradients of the first step, in double precision")
    exact = run("fp64", options, steps=1)
    runs = {}
    for backend in ("eager", options.backend):
        say(f"training, {backend}")
        runs[backend] = run(backend, options, steps=options.steps)
    errors = {backend: gradient_error(result, exact) for backend, result in runs.items()}

    print_table(runs, errors, options.steps)
    routes = runs[options.backend].get("routes")
    if routes is not None:
        print("\noperators by route: " + ", ".join(f"{count} {route}" for route, count in sorted(routes.items())))
    for backend, result in runs.items():
        print(f"\n--- {backend} writes ---\n{result['text'].rstrip()}")

    if routes is not None and (not routes or "left to PyTorch" in routes):
        sys.exit("\ndemo: FAILED: the step was not compiled; `permalloy.explain()` says why")
    name, error = errors[options.backend]
    limit = TOLERANCE * errors["eager"][1]
    if not error <= limit:
        sys.exit(
            f"\ndemo: FAILED: gradient of {name} is off by {error:.1e}, more than {TOLERANCE} times eager's own error"
        )
    print(f"\ndemo: gradients agree: worst error {error:.1e} ({name}), allowed {limit:.1e}")


def run(backend: str, options: argparse.Namespace, steps: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "result.pt")
        command = [sys.executable, str(Path(__file__).with_name("train.py")), backend, str(output)]
        command += ["--steps", str(steps)]
        for name in ("batch", "seed", "write"):
            command += [f"--{name}", str(getattr(options, name))]
        if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"demo: FAILED: the {backend} run did not finish; its message is above")
        return torch.load(output)


def gradient_error(result: dict, exact: dict) -> tuple[str, float]:
    """The parameter with the worst `‖g − g_exact‖ / ‖g_exact‖`; a missing or NaN gradient counts as infinite."""
    errors = {}
    for name, reference in exact["gradients"].items():
        gradient = result["gradients"].get(name)
        error = float("inf") if gradient is None else ((gradient.double() - reference).norm() / reference.norm()).item()
        errors[name] = error if error == error else float("inf")
    return max(errors.items(), key=lambda item: item[1])


def print_table(runs: dict[str, dict], errors: dict[str, tuple[str, float]], steps: int) -> None:
    rows = [[column.format(steps=steps) for column in COLUMNS]]
    for backend, result in runs.items():
        rows.append(
            [
                backend,
                f"{result['first_s']:.2f}",
                f"{result['step_ms']:.1f}",
                f"{result['tokens_per_s']:,.0f}",
                f"{result['peak_mb']:,.0f}",
                f"{result['losses'][-1]:.4f}",
                f"{errors[backend][1]:.1e}",
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    print()
    for number, row in enumerate(rows):
        first, *others = (
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
