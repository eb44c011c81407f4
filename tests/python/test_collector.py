"""Python's garbage collector rests while Dynamo compiles, and is afterwards as it was before."""

import gc

import permalloy
import pytest
import torch
from permalloy import collector


class Broken(Exception):
    """Raised by a function while it is traced."""


@pytest.fixture
def seen():
    """What `gc.isenabled()` said while a function was traced."""
    torch._dynamo.reset()
    collector.register()
    states = []

    def watching(gm, inputs):
        states.append(gc.isenabled())
        return gm.forward

    step = torch.compile(lambda x: (x * 2 + 1).sum(), backend=watching, dynamic=False)
    yield lambda: (step(torch.ones(3 + len(states))), states[-1])[1]
    gc.enable()


def test_rests_while_dynamo_compiles(seen):
    assert seen() is False and gc.isenabled()
    assert seen() is False and gc.isenabled()


def test_option_keeps_it_awake(seen):
    with permalloy.config.patch(pause_gc=False):
        assert seen() is True and gc.isenabled()


def test_stays_off_where_the_user_turned_it_off(seen):
    gc.disable()
    assert seen() is False and not gc.isenabled()


def test_goes_on_after_a_compile_that_fails():
    torch._dynamo.reset()

    def broken(gm, inputs):
        assert not gc.isenabled()
        raise Broken

    collector.register()
    with pytest.raises(Exception, match="Broken"):
        torch.compile(lambda x: x + 1, backend=broken)(torch.ones(3))
    assert gc.isenabled()


def test_registers_once_and_again_after_a_reset():
    step = torch.compile(lambda x: x.sin().sum(), backend="permalloy")
    torch._dynamo.reset()
    for n in (4, 5):
        step(torch.ones(n))
    handler = torch._dynamo.callback.callback_handler
    assert len([c for c in handler.start_callbacks if c.__module__ == "permalloy.collector"]) == 1
    assert len([c for c in handler.end_callbacks if c.__module__ == "permalloy.collector"]) == 1
