"""Runs random programs: ``python -m fuzz --count 20000 --from 0 --seconds 280``.

One in a hundred goes through ``torch.compile`` as a user would call it, half of those with dynamic shapes, three more
through AOTAutograd; joint graphs of the others are recorded in ``joint.py``. A failure is printed as a smaller program
that still fails, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import permalloy
import torch

from . import check, programs
from .joint import Joint
from .programs import Program
from .shrink import shrink

AOT_EVERY, DYNAMO_EVERY = 25, 100


@dataclass
class Tally:
    right: int = 0
    refused: int = 0
    next_seed: int = 0
    failures: list[str] = field(default_factory=list)


def compiler_of(seed: int) -> Callable[[Program], check.Compiled]:
    if seed % DYNAMO_EVERY == 0:
        return lambda program: check.through_dynamo(program, dynamic=bool(seed // DYNAMO_EVERY % 2))
    return check.through_aot if seed % AOT_EVERY == 0 else Joint


def failure(program: Program, seed: int) -> str | None:
    """What is wrong with a program, or None. Raises ``check.Refused``."""
    try:
        check.check(program, compiler_of(seed))
    except check.Wrong as e:
        return str(e)
    return None


def fails(program: Program, seed: int) -> bool:
    try:
        return failure(program, seed) is not None
    except Exception:  # noqa: BLE001 - a smaller program that makes no sense is none that fails
        return False


def run(start: int, count: int | None = None, seconds: float | None = None, most_failures: int = 5) -> Tally:
    """Checks ``count`` programs from a seed on, or as many as the time allows. Those PyTorch refuses do not count."""
    tally, ends = Tally(next_seed=start), time.monotonic() + (seconds or float("inf"))
    while (count is None or tally.right < count) and time.monotonic() < ends and len(tally.failures) < most_failures:
        seed = tally.next_seed
        tally.next_seed += 1
        program = programs.generate(seed)
        try:
            message = failure(program, seed) if program is not None else "none"
        except check.Refused:
            message = "none"
        if message is None:
            tally.right += 1
        elif message == "none":
            tally.refused += 1
        else:
            small = shrink(program, lambda p, seed=seed: fails(p, seed))
            tally.failures.append(f"seed {seed}: {message}\n{small}")
        if tally.next_seed % 50 == 0:
            permalloy.clear_records()
            gc.collect()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, help="programs to check")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--from", dest="start", type=int, default=0, help="first seed")
    given = parser.parse_args()
    if given.count is None and given.seconds is None:
        parser.error("give --count or --seconds")
    torch.set_num_threads(1)
    # Tracing makes many objects that refer to each other; looking for them in between costs a third of the time.
    gc.disable()
    warnings.simplefilter("ignore")
    start = time.monotonic()
    tally = run(given.start, given.count, given.seconds)
    took = time.monotonic() - start
    print(*tally.failures, sep="\n\n")
    print(
        f"{tally.right} programs right, {len(tally.failures)} wrong, {tally.refused} refused by PyTorch "
        f"(seeds {given.start} to {tally.next_seed - 1}, {took:.0f} s)"
    )
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
