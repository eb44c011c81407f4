"""The cut of a joint graph: no model saves more for its backward than PyTorch's partitioners would."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
from pathlib import Path

import permalloy
import pytest
import torch
from permalloy.backend import Session
from permalloy.export import export
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

BENCH = Path(__file__).resolve().parents[2] / "bench" / "models.py"
MODELS = ["nanogpt", "gpt2", "llama", "bert", "resnet", "dlrm"]


class Seen(Exception):
    """What a joint graph was wanted for is known."""


@pytest.fixture(scope="module")
def models():
    spec = importlib.util.spec_from_file_location("bench_models", BENCH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    module.LAYERS = 2
    return module


def joint_of(loss, batch, look):
    """What `look(joint, inputs, keywords)` says of the joint graph of a step. Nothing is run."""
    found = []

    def cut(joint, inputs, **keywords):
        found.append(look(joint, inputs, keywords))
        raise Seen

    def nothing(gm, _):
        return gm.forward

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=nothing, bw_compiler=nothing, partition_fn=cut, decompositions={})
    with pytest.raises(Exception, match="Seen"):
        torch.compile(loss, backend=backend)(*batch)
    assert len(found) == 1
    return found[0]


def saved_bytes(halves, forward_outputs):
    """Bytes that the forward keeps for the backward, beside its own arguments."""
    forward = halves[0].graph
    given = {n.name for n in forward.find_nodes(op="placeholder")}
    kept = forward.find_nodes(op="output")[0].args[0][forward_outputs:]
    made = [n.meta["val"] for n in kept if n.name not in given]
    return sum(v.numel() * v.element_size() for v in made if isinstance(v, torch.Tensor))


def pytorchs(joint, inputs, keywords):
    n = keywords["num_fwd_outputs"]
    cuts = default_partition, min_cut_rematerialization_partition
    copies = [torch.fx.GraphModule(joint, copy.deepcopy(joint.graph)) for _ in cuts]
    return [saved_bytes(cut(each, inputs, **keywords), n) for cut, each in zip(cuts, copies)]


@pytest.mark.parametrize("name", MODELS)
def test_saves_no_more_than_pytorchs_partitioners(models, name):
    def look(joint, inputs, keywords):
        theirs = pytorchs(joint, inputs, keywords)
        return saved_bytes(Session().partition(joint, inputs, **keywords), keywords["num_fwd_outputs"]), *theirs

    torch.manual_seed(0)
    work = models.build(name)
    own, default, minimum = joint_of(work.loss, work.batch, look)
    assert own <= default and own <= minimum, (own, default, minimum)


TYPE = re.compile(r"\b((?:bool|bf16|[fiu]\d+)\[[^\]]*\](?: strides=\[[^\]]*\])?)")


@pytest.mark.parametrize("name", MODELS)
def test_saves_no_more_on_a_gpu(models, name, tmp_path):
    """The graph of a step under bf16 autocast, told to be on a GPU: there what is far from its readers is not made twice."""

    def look(joint, inputs, keywords):
        n = keywords["num_fwd_outputs"]
        text = export(joint, "joint", name=name, forward_outputs=n).text
        return TYPE.sub(r"\1 @cuda:0", text).replace("@cpu", "@cuda:0"), pytorchs(joint, inputs, keywords)

    def step(*batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return work.loss(*batch)

    torch.manual_seed(0)
    work = models.build(name)
    text, theirs = joint_of(step, work.batch, look)
    file = tmp_path / f"{name}.pm"
    file.write_text(text)
    status, out = permalloy._core.command(["explain", "--json", "--target", "cuda", str(file)])
    assert status == 0, out
    own = json.loads(out)["saved"]["bytes"]
    assert own <= min(theirs), (own, *theirs)


def budget_step(x, w, v):
    h = torch.nn.functional.dropout(torch.tanh(x @ w), 0.25)
    return torch.layer_norm(h @ v, [v.shape[1]]).exp().mean()


def test_a_lower_memory_budget_saves_less_and_gives_the_same_gradients():
    torch.manual_seed(0)
    args = [torch.randn(*shape).requires_grad_() for shape in [(48, 64), (64, 96), (96, 32)]]
    torch.manual_seed(7)
    want = torch.autograd.grad(budget_step(*args), args)

    def look(joint, inputs, keywords):
        return saved_bytes(Session().partition(joint, inputs, **keywords), keywords["num_fwd_outputs"])

    saved = []
    for budget in (1.0, 0.75, 0.5, 0.25, 0.0):
        with permalloy.config.patch(memory_budget=budget):
            saved.append(joint_of(budget_step, args, look))
            torch._dynamo.reset()
            torch.manual_seed(7)  # dropout draws what eager draws, once
            got = torch.autograd.grad(torch.compile(budget_step, backend="permalloy")(*args), args)
        for mine, eagers in zip(got, want):
            torch.testing.assert_close(mine, eagers)
    assert saved == sorted(saved, reverse=True) and saved[-1] < saved[0] / 2, saved


def test_a_lower_memory_budget_saves_less_of_a_model(models):
    def look(joint, inputs, keywords):
        cut = []
        for budget in (1.0, 0.6, 0.3, 0.0):
            with permalloy.config.patch(memory_budget=budget):
                cut.append(saved_bytes(Session().partition(joint, inputs, **keywords), keywords["num_fwd_outputs"]))
        return cut

    torch.manual_seed(0)
    work = models.build("nanogpt")
    saved = joint_of(work.loss, work.batch, look)
    assert saved == sorted(saved, reverse=True), saved
    assert saved[1] <= 0.6 * saved[0] and saved[2] <= 0.3 * saved[0], saved
