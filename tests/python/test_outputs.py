"""Large outputs live in memory that is reused from call to call: they behave like any other tensor."""

import copy
import gc
import io
import pickle
import subprocess
import sys
import textwrap
import threading

import permalloy
import pytest
import torch
import torch.multiprocessing as mp

ROWS, COLUMNS = 512, 1024  # 2 MB of float32


def twice(x):
    return x * 2 + 1


def compiled(fn, **options):
    torch._dynamo.reset()
    return torch.compile(fn, backend="permalloy", fullgraph=True, options=options or None)


def numbers(value=1.0):
    return torch.full((ROWS, COLUMNS), float(value))


def test_memory_of_a_dead_output_is_used_again():
    step = compiled(twice)
    held = step(numbers(1))
    dead = step(numbers(2))
    address = dead.data_ptr()
    del dead
    reused = step(numbers(3))
    assert reused.data_ptr() == address
    assert (held == 3).all() and (reused == 7).all()


def test_memory_that_anything_holds_is_not_touched():
    step = compiled(lambda x: (x * 2, x + 1))
    holders = []
    for value in range(12):
        first, second = step(numbers(value))
        # A view, a detached tensor, NumPy's array and a storage each keep the memory of their output.
        holders.append((2 * value, first[1:, 1:]))
        holders.append((value + 1, second.detach().numpy()))
        first, second = step(numbers(value))
        holders.append((2 * value, first.view(-1).untyped_storage()))
        holders.append((value + 1, torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(second))))
        del first, second
    for value, holder in holders:
        if isinstance(holder, torch.UntypedStorage):
            holder = torch.tensor([], dtype=torch.float32).set_(holder)
        assert (holder == value).all()


def test_outputs_outlive_the_compiled_function():
    step = compiled(twice)
    y = step(numbers(4))
    del step
    torch._dynamo.reset()
    gc.collect()
    other = compiled(lambda x: x - 1)
    z = other(numbers(8))
    assert (y == 9).all() and (z == 7).all() and y.data_ptr() != z.data_ptr()


def test_outputs_may_die_on_another_thread():
    step = compiled(twice)
    for _ in range(20):
        box = [step(numbers(1))]
        thread = threading.Thread(target=box.clear)
        thread.start()
        y = step(numbers(2))
        thread.join()
        assert (y == 5).all()


def test_threads_call_at_the_same_time():
    # Not fullgraph: calls that end out of order would leave Dynamo's one switch for it (eval_frame_override) set, and
    # nothing behind a graph break would be compiled in this process any more.
    torch._dynamo.reset()
    step = torch.compile(twice, backend="permalloy")
    step(numbers(0))
    wrong = []

    def work(value):
        for _ in range(30):
            y = step(numbers(value))
            z = step(numbers(-value))
            if not ((y == 2 * value + 1).all() and (z == 1 - 2 * value).all()):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_writing_to_an_output_stays_with_it():
    step = compiled(twice)
    x = numbers(1)
    y = step(x)
    y.mul_(0).add_(torch.arange(COLUMNS))
    z = step(x)
    assert (y[3] == torch.arange(COLUMNS)).all() and (z == 3).all()


def test_outputs_are_saved_copied_shared_and_set_like_any_tensor():
    y = compiled(twice)(numbers(1))
    want = numbers(3)
    assert torch.equal(pickle.loads(pickle.dumps(y)), want)
    file = io.BytesIO()
    torch.save(y, file)
    assert file.tell() < y.nbytes + 4096, "no more than the tensor is saved"
    file.seek(0)
    assert torch.equal(torch.load(file), want)
    assert torch.equal(copy.deepcopy(y), want)
    assert y.untyped_storage().nbytes() == y.nbytes
    assert torch.equal(torch.empty(0).set_(y), want)
    array = y.numpy()
    array[0, 0] = 8
    assert y[0, 0] == 8
    assert torch.equal(y.clone().share_memory_(), y)
    y.share_memory_()
    assert y.is_shared() and y[0, 0] == 8 and torch.equal(y[1:], want[1:])


def _add_one(y):
    y.add_(1)


def test_an_output_in_shared_memory_reaches_another_process():
    y = compiled(twice)(numbers(1)).share_memory_()
    process = mp.get_context("spawn").Process(target=_add_one, args=(y,))
    process.start()
    process.join()
    assert process.exitcode == 0 and (y == 4).all()


def test_an_output_shrinks_in_place_and_grows_only_without_the_pool():
    y = compiled(twice)(numbers(1))
    y.resize_(ROWS, COLUMNS // 2)
    assert (y == 3).all()
    with pytest.raises(RuntimeError, match="not resizable"):
        y.resize_(2 * ROWS, COLUMNS)
    z = compiled(twice, pool_outputs=False)(numbers(1))
    z.resize_(2 * ROWS, COLUMNS)
    assert z.shape == (2 * ROWS, COLUMNS) and (z[:ROWS] == 3).all()


def test_gradients_are_accumulated_freed_and_made_again():
    weight = torch.nn.Parameter(numbers(2))
    x = numbers(3)
    step = compiled(lambda x: (weight * x).sin().sum())
    want = 3 * numbers(6).cos()
    for _ in range(3):
        weight.grad = None
        step(x).backward()
        torch.testing.assert_close(weight.grad, want)
        step(x).backward()
        torch.testing.assert_close(weight.grad, 2 * want)
        kept = weight.grad
        weight.grad = None
        step(x).backward()
        torch.testing.assert_close(kept, 2 * want)
        weight.grad.zero_()
        step(x).backward()
        torch.testing.assert_close(weight.grad, want)


def test_a_retained_graph_keeps_its_saved_values():
    weight = torch.nn.Parameter(numbers(2))
    step = compiled(lambda x: (weight * x).sin().exp().sum())
    loss = step(numbers(3))
    loss.backward(retain_graph=True)
    first = weight.grad.clone()
    for _ in range(3):
        step(numbers(5)).backward()
    weight.grad = None
    loss.backward()
    assert torch.equal(weight.grad, first)


def test_outputs_of_interpreter_exit():
    """Tensors that live until the interpreter ends, also in the thread of a daemon, end it without noise."""
    code = """
        import sys, threading, torch
        step = torch.compile(lambda x: x * 2 + 1, backend="permalloy")
        x = torch.ones(2048, 4096)
        sys.kept = [step(x) for _ in range(3)]
        ready = threading.Event()
        def work(held=[]):
            while True:
                held[:] = [step(x)]
                ready.set()
        threading.Thread(target=work, daemon=True).start()
        ready.wait()
        print(float(sys.kept[0][0, 0]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3.0\n"


def test_steps_of_a_model_fault_no_pages_in():
    """After the first steps the memory of a step is that of the step before."""
    resource = pytest.importorskip("resource")
    layers = [torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 1024))
    step = compiled(lambda x: model(x).square().mean())
    x = torch.randn(8192, 1024)

    def faults_of_a_step():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        model.zero_grad()
        step(x).backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    for _ in range(3):
        faults_of_a_step()
    assert min(faults_of_a_step() for _ in range(3)) < 2000  # 8 MB; eager's activations alone are 130 MB


def test_config_knows_the_switch():
    assert permalloy.config.pool_outputs is True
