"""Routes chosen by timing them: once, at compile, kept on disk; the user's own lines win."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import permalloy
import pytest
import torch
import torch.nn.functional as F

OPERATORS = ("aten.embedding_dense_backward.default", "aten.native_layer_norm.default", "aten._log_softmax.default")

#: One step in a process of its own; prints the loss, the table's gradient and all decisions.
STEP = """
import json, sys, torch, permalloy
import torch.nn.functional as F
sys.path.insert(0, sys.argv[1])
from test_tune import step, arguments
args = arguments()
torch.compile(step, backend="permalloy")(*args).backward()
decisions = [d for r in permalloy.records() for d in r.decisions]
kept = [r.kept for r in permalloy.records()]
result = {"gradient": args[0].grad.tolist(), "decisions": decisions, "text": permalloy.explain(), "kept": kept}
print(json.dumps(result))
"""


def step(table, indices, scale, targets):
    rows = F.layer_norm(F.embedding(indices, table), (table.shape[1],), scale)
    return F.cross_entropy(rows @ table.T, targets)


def arguments(dtype=torch.float32):
    made = torch.Generator().manual_seed(0)
    table = torch.randn(50, 16, generator=made, dtype=torch.float64).to(dtype).requires_grad_()
    scale = torch.rand(16, generator=made, dtype=torch.float64).to(dtype).requires_grad_()
    return (
        table,
        torch.randint(50, (40,), generator=made),
        scale,
        torch.randint(50, (40,), generator=made),
    )


def run(cache: Path, **variables: str) -> dict:
    environment = {**os.environ, "PERMALLOY_CACHE_DIR": str(cache), "PERMALLOY_TUNE": "full", **variables}
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(Path(__file__).parent)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def measured(result: dict) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for d in result["decisions"]:
        if d["reason"] == "measured":
            found.setdefault(d["operator"], []).append(d["detail"])
    return found


def contents(cache: Path) -> dict[str, tuple[int, str]]:
    return {p.name: (p.stat().st_mtime_ns, p.read_text()) for p in (cache / "tuned").iterdir()}


def exact_gradient() -> torch.Tensor:
    args = arguments(torch.float64)
    step(*args).backward()
    return args[0].grad


def right(result: dict) -> None:
    """The contract on numbers: no farther from double precision than twice what eager is, and a unit in the last place."""
    args = arguments()
    step(*args).backward()
    exact, eager = exact_gradient(), args[0].grad
    ours = torch.tensor(result["gradient"], dtype=torch.float64)
    allowed = 2 * (eager - exact).abs().max() + torch.finfo(torch.float32).eps * exact.abs().max()
    assert (ours - exact).abs().max() <= allowed


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return cache, run(cache)


def test_operators_are_timed_once_and_the_next_process_times_nothing(tuned):
    cache, first = tuned
    assert set(OPERATORS) <= set(measured(first))
    assert all("timed now" in d or "(kept" in d for ds in measured(first).values() for d in ds)
    assert any("timed now" in d for ds in measured(first).values() for d in ds)
    files = contents(cache)
    assert files and all(not name.startswith(".") for name in files)
    second = run(cache)
    assert measured(second).keys() == measured(first).keys()
    assert all("(kept" in d for ds in measured(second).values() for d in ds)
    assert contents(cache) == files
    routes = [[(d["operator"], d["route"]) for d in r["decisions"]] for r in (first, second)]
    assert routes[0] == routes[1]
    right(first)
    right(second)


def test_what_is_slower_is_not_taken_and_explain_shows_the_times(tuned):
    _, result = tuned
    for d in result["decisions"]:
        if d["reason"] != "measured":
            continue
        times = dict(re.findall(r"([\w:]+) ([\d.]+) ms", d["detail"]))
        assert len(times) > 1
        taken = float(times[d["route"].removeprefix("decompose:")])
        fastest = min(map(float, times.values()))
        # The text has three digits and the margin is a twentieth.
        assert taken <= fastest * 1.06 + 2e-3, d
        line = f"{d['operator']} -> {d['route']}: measured, {d['detail']}"
        assert line in result["text"]


def test_a_damaged_measurement_is_measured_again(tuned, tmp_path):
    cache, _ = tuned
    (tmp_path / "tuned").mkdir()
    for name, (_, text) in contents(cache).items():
        path = tmp_path / "tuned" / name
        path.write_text(text.replace(" ns", "1 ns", 1) if "embedding" in name else text[: len(text) // 2])
        path.chmod(0o600)
    damaged = contents(tmp_path)
    result = run(tmp_path)
    found = measured(result)
    assert set(OPERATORS) <= set(found)
    assert all(any("timed now" in d for d in found[op]) for op in OPERATORS)
    mended = contents(tmp_path)
    assert mended.keys() == damaged.keys() and all(mended[n][1] != damaged[n][1] for n in mended)
    right(result)


def test_a_users_line_wins_over_measurements(tuned):
    cache, _ = tuned
    for route in ("native", "embedding_dense_backward"):
        result = run(cache, PERMALLOY_ROUTES=f"aten.embedding_dense_backward.*={route}")
        (decision,) = [d for d in result["decisions"] if d["operator"] == OPERATORS[0]]
        wanted = "native" if route == "native" else f"decompose:{route}"
        assert (decision["route"], decision["reason"]) == (wanted, "override")
        right(result)


def test_what_was_measured_is_no_part_of_a_kept_trace(tuned, tmp_path):
    cache, _ = tuned
    variables = {"PERMALLOY_KEEP_TRACES": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    kept = [run(cache, **variables, PERMALLOY_TUNE=mode)["kept"] for mode in ("full", "full", "off", "off")]
    assert [all(k) for k in kept] == [False, False, False, True]


def test_a_forbidden_route_is_no_candidate(tmp_path):
    permalloy.clear_records()
    args = arguments()
    deny = ["native:aten.embedding_dense_backward.default"]
    with permalloy.config.patch(cache_dir=str(tmp_path), tune="full", deny=deny):
        torch.compile(step, backend="permalloy")(*args).backward()
    decisions = [d for r in permalloy.records() for d in r.decisions if d["operator"] == OPERATORS[0]]
    assert [d["route"] for d in decisions] == ["decompose:embedding_dense_backward"]


@pytest.mark.parametrize("mode", ["off", "fast"])
def test_off_times_nothing_and_fast_no_more_than_full(mode, tuned, tmp_path):
    full, _ = tuned
    result = run(tmp_path, PERMALLOY_TUNE=mode)
    kept = set(contents(tmp_path)) if (tmp_path / "tuned").exists() else set()
    assert kept <= set(contents(full))
    if mode == "off":
        assert not kept and not measured(result)
    right(result)


def test_random_numbers_and_autograd_stay_as_they_are(tmp_path):
    """Timing draws none of the user's random numbers and leaves the thread's settings alone."""
    x, w = torch.randn(64, 32), torch.randn(32, requires_grad=True)

    def noisy(x, w):
        return (F.layer_norm(F.dropout(x, 0.5), (32,), w).softmax(-1) ** 2).sum()

    with permalloy.config.patch(cache_dir=str(tmp_path), tune="full"):
        torch.manual_seed(1)
        got = torch.compile(noisy, backend="permalloy")(x, w)
    after = torch.rand(3)
    assert torch.is_grad_enabled()
    torch.manual_seed(1)
    torch.testing.assert_close(got, noisy(x, w))
    assert torch.equal(after, torch.rand(3))
    assert list((tmp_path / "tuned").iterdir())


def test_symbolic_sizes_are_timed_at_their_hints(tmp_path):
    permalloy.clear_records()
    args = arguments()
    with permalloy.config.patch(cache_dir=str(tmp_path), tune="full"):
        compiled = torch.compile(step, backend="permalloy", dynamic=True)
        for rows in (40, 24):
            cut = (args[0], args[1][:rows], args[2], args[3][:rows])
            torch.testing.assert_close(compiled(*cut), step(*cut))
    reasons = {d["reason"] for r in permalloy.records() for d in r.decisions if d["operator"] in OPERATORS}
    assert reasons == {"measured"}


def test_the_command_shows_what_was_measured_here(tuned):
    cache, _ = tuned
    command = [
        sys.executable,
        "-m",
        "permalloy",
        "ops",
        "--why",
        OPERATORS[0],
        "--target",
        "cpu",
        "--cache",
        str(cache),
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert re.search(r"measured  native [\d.]+ ms, embedding_dense_backward [\d.]+ ms", text), text
    assert f"torch {torch.__version__}" in text and "reason " in text and "evidence " in text


def test_an_unknown_value_names_the_choices():
    with pytest.raises(ValueError, match="off, fast, full"):
        permalloy.config.tune = "always"
    done = subprocess.run(
        [sys.executable, "-c", "import permalloy"],
        env={**os.environ, "PERMALLOY_TUNE": "fats"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0 and "off, fast, full" in done.stderr
