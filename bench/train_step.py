"""Training steps of six models, every backend in a process of its own with empty caches, judged against the targets.

usage: train_step.py [--models nanogpt,gpt2,llama,bert,resnet,dlrm] [--backends eager,floor,inductor,permalloy]
                     [--device cpu|cuda] [--steps N] [--limit SECONDS] [--json FILE]

On a GPU the models have a GPU's sizes, and run under bf16 autocast. `floor` is what any compiler pays: Dynamo and AOTAutograd trace the step, and nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

MODELS = ["nanogpt", "gpt2", "llama", "bert", "resnet", "dlrm"]
BACKENDS = ["eager", "floor", "inductor", "permalloy"]
# How many times sooner than Inductor's the first step must be over.
SOONER_THAN_INDUCTOR = {"nanogpt": 8, "dlrm": 8, "gpt2": 4, "llama": 4, "bert": 4}

Result = dict[str, float]


# --- one measurement, in its own process ---


def measure(model: str, backend: str, device: str, steps: int, folder: Path) -> Result:
    """Gradients of the first step go to `folder`; those of eager are what the others are compared with."""
    import models
    import torch

    torch.manual_seed(0)
    gpu = device == "cuda"
    workload = models.build(model, large=gpu)
    workload.model.train().to(device)
    batch = [t.to(device) for t in workload.batch]
    synchronize = torch.cuda.synchronize if gpu else (lambda: None)
    if gpu:
        torch.set_float32_matmul_precision("high")

    def loss(*batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=gpu):
            return workload.loss(*batch)

    loss_of = compiled(loss, backend)

    def step() -> tuple[float, float]:
        workload.model.zero_grad(set_to_none=True)
        synchronize()
        started = time.perf_counter()
        loss = loss_of(*batch)
        loss.backward()
        synchronize()
        return time.perf_counter() - started, loss.item()

    first, loss = step()
    gradients = {name: p.grad.clone() for name, p in workload.model.named_parameters() if p.grad is not None}
    result = {
        "first_s": first,
        "loss": loss,
        "grad_norm": torch.stack([g.norm() for g in gradients.values()]).norm().item(),
    }
    if backend == "eager":
        torch.save(gradients, folder / "eager.pt")
    elif (folder / "eager.pt").exists():
        result["grad_error"] = worst_error(gradients, torch.load(folder / "eager.pt"))
    del gradients
    for _ in range(3):
        step()
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    result["step_ms"] = 1e3 * statistics.median(step()[0] for _ in range(steps))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    result["peak_mb"] = (torch.cuda.max_memory_allocated() if gpu else used) / 2**20
    return result


def compiled(function: Callable, backend: str) -> Callable:
    import torch

    if backend == "eager":
        return function
    if backend != "floor":
        return torch.compile(function, backend=backend)
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def as_traced(graph: torch.fx.GraphModule, _: object) -> Callable:
        return make_boxed_func(graph.forward)

    return torch.compile(
        function, backend=aot_autograd(fw_compiler=as_traced, bw_compiler=as_traced, decompositions={})
    )


def worst_error(gradients: dict, reference: dict) -> float:
    """Worst `‖g − r‖ / ‖r‖` over the parameters; where r all but vanishes, 1e-4 of the largest norm stands for ‖r‖."""
    if gradients.keys() != reference.keys():
        return float("inf")
    floor = 1e-4 * max(r.norm().item() for r in reference.values())
    return max(((gradients[name] - r).norm() / r.norm().clamp_min(floor)).item() for name, r in reference.items())


# --- all of them ---


def run_all(options: argparse.Namespace) -> dict[str, dict[str, Result | str]]:
    results: dict[str, dict[str, Result | str]] = {}
    print(
        f"{'model':<9}{'backend':<11}{'first step s':>13}{'step ms':>10}{'peak MB':>9}{'loss':>10}{'grad norm':>11}{'grad error':>12}"
    )
    for model in options.models.split(","):
        results[model] = {}
        with tempfile.TemporaryDirectory() as folder:
            for backend in options.backends.split(","):
                result = results[model][backend] = in_process(model, backend, options, Path(folder))
                print(f"{model:<9}{backend:<11}{cells(result)}", flush=True)
    return results


def in_process(model: str, backend: str, options: argparse.Namespace, folder: Path) -> Result | str:
    """What the process measured, or why it did not."""
    caches = folder / f"caches-{backend}"
    environment = dict(
        os.environ,
        TORCHINDUCTOR_CACHE_DIR=str(caches / "inductor"),
        TRITON_CACHE_DIR=str(caches / "triton"),
        PERMALLOY_CACHE_DIR=str(caches / "permalloy"),
    )
    command = [sys.executable, __file__, "--one", model, backend, str(folder)]
    command += ["--device", options.device, "--steps", str(options.steps)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return f"not done after {options.limit} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def cells(result: Result | str) -> str:
    if isinstance(result, str):
        return f"  FAILED: {result}"
    error = f"{result['grad_error']:.1e}" if "grad_error" in result else "-"
    return (
        f"{result['first_s']:>13.2f}{result['step_ms']:>10.1f}{result['peak_mb']:>9.0f}"
        f"{result['loss']:>10.5f}{result['grad_norm']:>11.5g}{error:>12}"
    )


def print_targets(results: dict[str, dict[str, Result | str]]) -> bool:
    """The table of ratios with a verdict each; whether all targets that could be judged hold."""
    columns = ["numbers", "first − floor", "first / inductor", "step / eager", "step / inductor", "peak / floor"]
    print("\npermalloy against the targets (a dash: nothing to compare with)\n")
    print(f"{'model':<9}" + "".join(f"{column:>20}" for column in columns))
    verdicts, no_slower_than_inductor = [], []
    for model, by_backend in results.items():
        ours = by_backend.get("permalloy")
        eager, floor, inductor = (usable(by_backend.get(name)) for name in ("eager", "floor", "inductor"))
        if not isinstance(ours, dict):
            print(f"{model:<9}  {ours or 'not measured'}")
            verdicts.append(ours is None)
            continue
        same = eager and all(f"{ours[key]:.5g}" == f"{eager[key]:.5g}" for key in ("loss", "grad_norm"))
        sooner = SOONER_THAN_INDUCTOR.get(model)
        row = [
            ("equal to 5 digits" if same else "differ", same) if eager else None,
            judged(ours["first_s"] - floor["first_s"], 1.5, "s") if floor else None,
            judged(ours["first_s"] / inductor["first_s"], 1 / sooner) if inductor and sooner else None,
            judged(ours["step_ms"] / eager["step_ms"], 1.0) if eager else None,
            (f"{ours['step_ms'] / inductor['step_ms']:.2f}", True) if inductor else None,
            judged(ours["peak_mb"] / floor["peak_mb"], 1.05) if floor else None,
        ]
        if inductor:
            no_slower_than_inductor.append(ours["step_ms"] <= inductor["step_ms"])
        print(f"{model:<9}" + "".join(f"{cell[0] if cell else '-':>20}" for cell in row))
        verdicts += [cell[1] for cell in row if cell]
    if no_slower_than_inductor:
        won, of = sum(no_slower_than_inductor), len(no_slower_than_inductor)
        wanted = min(4, of)
        print(
            f"\nstep no slower than Inductor's on {won} of {of} (target {wanted}): {'pass' if won >= wanted else 'FAIL'}"
        )
        verdicts.append(won >= wanted)
    return all(verdicts)


def print_gpu_targets(results: dict[str, dict[str, Result | str]]) -> bool:
    """Ratios of Inductor's figures to ours on a GPU, with the targets; whether all that could be judged hold."""
    print("\nInductor ÷ permalloy; peak memory is permalloy ÷ Inductor\n")
    print(f"{'model':<9}" + "".join(f"{column:>20}" for column in ["step", "first step", "peak"]))
    steps, verdicts = [], []
    for model, by_backend in results.items():
        ours, inductor = usable(by_backend.get("permalloy")), usable(by_backend.get("inductor"))
        if not ours or not inductor:
            print(f"{model:<9}  not measured: {by_backend.get('inductor') if ours else by_backend.get('permalloy')}")
            verdicts.append(False)
            continue
        steps.append(inductor["step_ms"] / ours["step_ms"])
        least = {"bert": 1.35, "nanogpt": 1.25}.get(model, 0.97)
        row = [
            reached(steps[-1], least),
            reached(inductor["first_s"] / ours["first_s"], 3),
            judged(ours["peak_mb"] / inductor["peak_mb"], 1.0),
        ]
        print(f"{model:<9}" + "".join(f"{text:>20}" for text, _ in row))
        verdicts += [held for _, held in row]
    if steps:
        mean = statistics.geometric_mean(steps)
        print(f"\ngeometric mean of the steps: {mean:.2f} (target 1.10): {'pass' if mean >= 1.1 else 'FAIL'}")
        verdicts.append(mean >= 1.1)
    return all(verdicts)


def usable(result: Result | str | None) -> Result | None:
    return result if isinstance(result, dict) else None


def judged(value: float, limit: float, unit: str = "") -> tuple[str, bool]:
    held = value <= limit
    return f"{value:.2f}{unit} ≤ {limit:.3g} {'pass' if held else 'FAIL'}", held


def reached(value: float, least: float) -> tuple[str, bool]:
    held = value >= least
    return f"{value:.2f} ≥ {least:.3g} {'pass' if held else 'FAIL'}", held


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "BACKEND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, backend, folder = options.one
        print(json.dumps(measure(model, backend, options.device, options.steps, Path(folder))))
        return
    results = run_all(options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if "permalloy" not in options.backends.split(","):
        return
    if not (print_gpu_targets if options.device == "cuda" else print_targets)(results):
        sys.exit(1)


if __name__ == "__main__":
    main()
