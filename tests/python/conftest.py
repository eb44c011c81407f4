"""What every Python test starts from: a fixed seed, no compiled code of the test before, a cache of its own."""

from __future__ import annotations

import os
import tempfile

import pytest

# Before permalloy is imported: its options read the environment once.
_cache = tempfile.TemporaryDirectory(prefix="permalloy-test-")
os.environ["PERMALLOY_CACHE_DIR"] = _cache.name
# Tests are about what is made of a graph, so each traces its own; test_traces.py has them kept.
os.environ["PERMALLOY_KEEP_TRACES"] = "0"


@pytest.fixture(autouse=True)
def fresh_torch():
    import torch

    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pytest_sessionfinish():
    _cache.cleanup()
