"""Pushes kernels through triton-ascend and BiSheng up to the last open stage; run by the Python of Ascend's environment.

A line of JSON asks for a kernel, a line answers. What comes after, `hivmc`, is closed and belongs to the device's toolkit:
`bishengir-compile` saves the module that it would get, and complains that it is not there. Nothing here has an NPU.
"""

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ABSENT = ("Cannot find hivmc", "External hivmc run fails")


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the compilers print must not come between
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def answer(request):
    """`{"error": None or text, "stage": the last one begun, "seconds": of the processor, by stage}`"""
    progress = {"stage": "source", "seconds": {}, "error": None}
    try:
        lower(request, progress)
    except subprocess.CalledProcessError as e:
        progress["error"] = (e.stderr or b"").decode("utf-8", "replace") or str(e)
    except Exception as e:  # noqa: BLE001 - whatever a compiler raises is this kernel's result
        texts = []
        while e is not None:
            texts.append(f"{type(e).__name__}: {e}")
            e = e.__cause__
        progress["error"] = "\n".join(texts)
    return progress


def spent():
    """Seconds of this process and of the programs it has run on the processor: of use on a busy machine, too."""
    return sum(
        t.ru_utime + t.ru_stime for t in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def lower(request, progress):
    from triton._C.libtriton import ir
    from triton.backends.ascend import compiler
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource, make_backend

    def stage(name, run):
        progress["stage"] = name
        start = spent()
        try:
            return run()
        finally:
            progress["seconds"][name] = spent() - start

    arch = request["arch"]
    target = GPUTarget("npu", arch, 0)
    backend = make_backend(target)
    a5 = arch.startswith("Ascend910_95")
    options = backend.parse_options({"num_warps": request["num_warps"], "compile_on_910_95": a5})
    metadata = {"hash": "none", "target": target, **options.__dict__}

    def to_triton(folder):
        path = Path(folder, "kernel_source.py")  # Triton reads the text of functions again, from their file
        path.write_text(request["source"])
        function = function_of(path, request["kernel"])
        names, types = function.arg_names, request["signature"]
        aligned = {"tt.divisibility": request["aligned"], "tt.equal_to": []}
        source = ASTSource(
            function,
            dict(zip(names, types)),
            dict(zip(names[len(types) :], request["constants"])),
            compiler.AscendAttrsDescriptor.from_dict({"cls": "AscendAttrsDescriptor", "arg_properties": aligned}),
        )
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        module = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
        return context, compiler.make_ttir(module, metadata, options)  # the module does not keep its context

    with tempfile.TemporaryDirectory() as folder:
        _context, module = stage("triton", lambda: to_triton(folder))
    text = stage("linalg", lambda: compiler.ttir_to_linalg(module, metadata, options, named_ops=True))
    stage("hivm", lambda: to_hivm(text, metadata, options, arch))


def function_of(path, name):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def to_hivm(text, metadata, options, arch):
    """As triton-ascend calls BiSheng, up to hivmc."""
    from triton.backends.ascend import compiler

    text, _ = compiler._parse_linalg_metadata(text, metadata)  # takes an attribute out of the text
    package = Path(importlib.util.find_spec("ascendnpuir").origin).parent
    program = package / "bin" / ("bishengir-compile-a5" if options.compile_on_910_95 else "bishengir-compile")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.mlir")
        source.write_text(text)
        command = [
            str(program),
            str(source),
            f"--target={arch}",
            "--enable-hfusion-compile=true",
            "--enable-hivm-compile=true",
            "--enable-triton-kernel-compile=true",
            f"--enable-auto-multi-buffer={options.multibuffer}",
            f"--enable-auto-bind-sub-block={options.enable_auto_bind_sub_block}",
            f"--save-temps={folder}",
            "-o",
            str(Path(folder, "kernel")),
        ]
        # No PATH: a hivmc that happens to be installed shall not decide.
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": folder})
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        stopped_at_hivmc = any(ABSENT[0] in line for line in said)
        errors = [line for line in said if "error:" in line and not any(a in line for a in ABSENT)]
        if errors or not stopped_at_hivmc or not Path(folder, "module.hivm.opt.mlir").exists():
            raise RuntimeError("\n".join(errors or said) or f"status {done.returncode} and nothing said")


if __name__ == "__main__":
    main()
