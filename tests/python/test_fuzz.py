"""Random programs, as ``make fuzz`` runs them, for a fixed time; and that a fault would be found."""

from __future__ import annotations

import warnings

import pytest
import torch
from fuzz import __main__ as fuzz
from fuzz import joint, programs

SECONDS = 25


@pytest.fixture(autouse=True)
def quiet():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)


def test_random_programs_compute_what_eager_does():
    tally = fuzz.run(0, seconds=SECONDS, most_failures=2)
    assert not tally.failures, "\n\n".join(tally.failures)
    assert tally.right > 2 * tally.refused, "most programs should be of use"


def test_a_program_is_the_same_each_time_and_its_text_says_all():
    texts = [str(programs.generate(seed)) for seed in range(30)]
    assert texts == [str(programs.generate(seed)) for seed in range(30)]
    kinds = "expand(", "scatter_add", "index_put", " @ ", "_(", "chunk", "cat("
    many = "\n".join(str(programs.generate(seed)) for seed in range(300))
    assert [k for k in kinds if k not in many] == []


def test_a_planted_fault_is_found_and_made_small(monkeypatch):
    sound = joint.export

    def export(*args, **keywords):
        exported = sound(*args, **keywords)
        # The planted fault: the gradient of tanh is taken for sigmoid's.
        exported.text = exported.text.replace("aten.tanh_backward.default", "aten.sigmoid_backward.default")
        return exported

    monkeypatch.setattr(joint, "export", export)
    tally = fuzz.run(1, count=200, most_failures=1)
    (failure,) = tally.failures
    program = failure[failure.index("def program") :].splitlines()
    assert "gradient of" in failure and "tanh" in failure
    # A line with the tanh, perhaps one that its argument needs, and the return.
    assert len(program) <= 4, failure
