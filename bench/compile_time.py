"""Our own share of compile time: everything after AOTAutograd, on synthetic graphs, without PyTorch's tracing.

usage: compile_time.py [--nodes 10000,20000] [--repeat N] [--write FOLDER]

The graphs imitate the joint graph of a deep network: blocks of a matrix product, bias, layer norm, activation and residual,
then the gradients of all of it, which read what the forward saved. `--write` leaves them as `.pm` files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROWS, WIDTH = 64, 128
LIMIT_S = {10_000: 1.0}
LIMIT_GROWTH = 2.3


def graph(nodes: int) -> str:
    """A joint graph of `nodes` nodes in text form."""
    return JointGraph(nodes).text


class JointGraph:
    """Writes blocks forward, then their gradients in reverse, until the nodes are used up."""

    ACTIVATION = f"f32[{ROWS}, {WIDTH}]"
    FORWARD, BACKWARD = 12, 22

    def __init__(self, nodes: int) -> None:
        self.lines: list[str] = []
        self.nodes = 0
        blocks = max(1, (nodes - 2) // (self.FORWARD + self.BACKWARD))
        inputs = [f"  input %x: {self.ACTIVATION} strides=[{WIDTH}, 1]"]
        for i in range(blocks):
            inputs.append(f"  input %w{i}: f32[{WIDTH}, {WIDTH}] strides=[{WIDTH}, 1]")
            inputs += [f"  input %{name}{i}: f32[{WIDTH}] strides=[1]" for name in ("b", "g", "h")]
        inputs.append("  input %tangent: f32[] role=tangent")
        value = "x"
        entered = []
        for i in range(blocks):
            entered.append(value)
            value = self.forward(i, value)
        self.node("loss", "f32[]", f"aten.sum.default(%{value})")
        gradient = self.node("dloss", self.ACTIVATION, f"aten.expand.default(%tangent, [{ROWS}, {WIDTH}])")
        outputs = ["loss"]
        for i in reversed(range(blocks)):
            gradient, weights = self.backward(i, entered[i], gradient)
            outputs += weights
        # What is left of the count: a chain on the last gradient.
        for k in range(nodes - self.nodes):
            gradient = self.node(f"tail{k}", self.ACTIVATION, f"aten.mul.Tensor(%{gradient}, 0.5)")
        outputs.append(gradient)
        self.text = "\n".join(
            [
                f'graph "synthetic_{nodes}" joint(forward_outputs=1) {{',
                *inputs,
                *self.lines,
                *(f"  output %{name}" for name in outputs),
                "}\n",
            ]
        )

    def node(self, name: str, ty: str, call: str) -> str:
        self.lines.append(f"  %{name}: {ty} = {call}")
        self.nodes += 1
        return name

    def forward(self, i: int, x: str) -> str:
        """y = x + gelu(layer_norm(x·w + b)·g + h), the norm written out."""
        full, column = self.ACTIVATION, f"f32[{ROWS}, 1]"
        self.node(f"mm{i}", full, f"aten.mm.default(%{x}, %w{i})")
        self.node(f"z{i}", full, f"aten.add.Tensor(%mm{i}, %b{i})")
        self.node(f"mean{i}", column, f"aten.mean.dim(%z{i}, [1], true)")
        self.node(f"c{i}", full, f"aten.sub.Tensor(%z{i}, %mean{i})")
        self.node(f"sq{i}", full, f"aten.mul.Tensor(%c{i}, %c{i})")
        self.node(f"var{i}", column, f"aten.mean.dim(%sq{i}, [1], true)")
        self.node(f"eps{i}", column, f"aten.add.Tensor(%var{i}, 1e-05)")
        self.node(f"rstd{i}", column, f"aten.rsqrt.default(%eps{i})")
        self.node(f"n{i}", full, f"aten.mul.Tensor(%c{i}, %rstd{i})")
        self.node(f"s{i}", full, f"aten.addcmul.default(%h{i}, %n{i}, %g{i})")
        self.node(f"a{i}", full, f'aten.gelu.default(%s{i}, approximate="tanh")')
        return self.node(f"y{i}", full, f"aten.add.Tensor(%{x}, %a{i})")

    def backward(self, i: int, x: str, dy: str) -> tuple[str, list[str]]:
        full, column, row = self.ACTIVATION, f"f32[{ROWS}, 1]", f"f32[{WIDTH}]"
        square = f"f32[{WIDTH}, {WIDTH}]"
        self.node(f"ds{i}", full, f'aten.gelu_backward.default(%{dy}, %s{i}, approximate="tanh")')
        self.node(f"dgn{i}", full, f"aten.mul.Tensor(%ds{i}, %n{i})")
        self.node(f"dg{i}", row, f"aten.sum.dim_IntList(%dgn{i}, [0])")
        self.node(f"dh{i}", row, f"aten.sum.dim_IntList(%ds{i}, [0])")
        self.node(f"dn{i}", full, f"aten.mul.Tensor(%ds{i}, %g{i})")
        self.node(f"m1{i}", column, f"aten.mean.dim(%dn{i}, [1], true)")
        self.node(f"p{i}", full, f"aten.mul.Tensor(%dn{i}, %n{i})")
        self.node(f"m2{i}", column, f"aten.mean.dim(%p{i}, [1], true)")
        self.node(f"q{i}", full, f"aten.mul.Tensor(%n{i}, %m2{i})")
        self.node(f"r{i}", full, f"aten.sub.Tensor(%dn{i}, %m1{i})")
        self.node(f"u{i}", full, f"aten.sub.Tensor(%r{i}, %q{i})")
        self.node(f"dz{i}", full, f"aten.mul.Tensor(%u{i}, %rstd{i})")
        self.node(f"db{i}", row, f"aten.sum.dim_IntList(%dz{i}, [0])")
        self.node(f"xt{i}", f"f32[{WIDTH}, {ROWS}]", f"aten.t.default(%{x})")
        self.node(f"dw{i}", square, f"aten.mm.default(%xt{i}, %dz{i})")
        self.node(f"wt{i}", square, f"aten.t.default(%w{i})")
        self.node(f"dm{i}", full, f"aten.mm.default(%dz{i}, %wt{i})")
        self.node(f"dv{i}", f"f32[{ROWS}, 4, {WIDTH // 4}]", f"aten.view.default(%dm{i}, [{ROWS}, 4, {WIDTH // 4}])")
        self.node(f"dp{i}", f"f32[4, {ROWS}, {WIDTH // 4}]", f"aten.permute.default(%dv{i}, [1, 0, 2])")
        self.node(f"dq{i}", f"f32[{ROWS}, 4, {WIDTH // 4}]", f"aten.permute.default(%dp{i}, [1, 0, 2])")
        self.node(f"dr{i}", full, f"aten.reshape.default(%dq{i}, [{ROWS}, {WIDTH}])")
        dx = self.node(f"dx{i}", full, f"aten.add.Tensor(%dr{i}, %{dy})")
        return dx, [f"dw{i}", f"db{i}", f"dg{i}", f"dh{i}"]


def compiler() -> Callable[[str], float]:
    """What compiles a joint graph given as text, with an empty cache, and returns the seconds of work that took.

    The calling thread does all of it, so its own time is what a user waits for where nothing else runs.
    """
    from permalloy import _core, config
    from permalloy.backend import Options

    if not hasattr(_core, "compile_joint"):
        sys.exit("bench: permalloy._core has no `compile_joint`: this wheel cannot compile a graph given as text")

    def seconds(text: str) -> float:
        with tempfile.TemporaryDirectory() as cache, config.patch(cache_dir=cache):
            options = Options.of_config()
            started = time.thread_time()
            _core.compile_joint(text, options)
            return time.thread_time() - started

    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--nodes", default="10000,20000")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    counts = [int(n) for n in options.nodes.split(",")]
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for nodes in counts:
            (options.write / f"synthetic_{nodes}.pm").write_text(graph(nodes))
        return
    compile_seconds = compiler()

    print(f"{'nodes':>8}{'seconds':>10}{'µs/node':>10}{'× previous':>12}   target")
    # All sizes in turn, and the best run of each: what else the machine does then weighs on none of them.
    texts = [graph(nodes) for nodes in counts]
    rounds = [[compile_seconds(text) for text in texts] for _ in range(options.repeat)]
    best = [min(runs) for runs in zip(*rounds, strict=True)]
    failed, previous = False, None
    for nodes, seconds in zip(counts, best, strict=True):
        growth = seconds / previous if previous else None
        verdicts = []
        if nodes in LIMIT_S:
            verdicts.append((f"< {LIMIT_S[nodes]} s", seconds < LIMIT_S[nodes]))
        if growth and nodes == 2 * counts[counts.index(nodes) - 1]:
            verdicts.append((f"< {LIMIT_GROWTH} × previous", growth < LIMIT_GROWTH))
        words = ", ".join(f"{what}: {'pass' if held else 'FAIL'}" for what, held in verdicts)
        ratio = f"{growth:.2f}" if growth else "-"
        print(f"{nodes:>8}{seconds:>10.3f}{1e6 * seconds / nodes:>10.1f}{ratio:>12}   {words}", flush=True)
        failed |= not all(held for _, held in verdicts)
        previous = seconds
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
