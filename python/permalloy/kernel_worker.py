"""What a worker process runs: requests in, machine code out, a line of JSON each. Triton is imported, PyTorch is not.

Started by ``worker_pool.py`` with the parent's module path as second argument; ends when its input does.
"""

import base64
import json
import linecache
import os
import sys
import types

_modules = 0


def main():
    sys.path[:] = json.loads(sys.argv[2])
    # What Triton prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import triton.compiler  # noqa: F401 - ready before the first request

    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer = compile_kernel(message["request"], message["capability"])
        except Exception as e:  # noqa: BLE001 - whatever it is, the caller is told
            answer = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def compile_kernel(request, capability):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source, signature, constants, aligned, num_warps, num_stages = request
    function = function_of(source)
    names = function.arg_names
    types_by_name = dict(zip(names, signature))
    types_by_name.update((name, "constexpr") for name in names[len(signature) :])
    made = triton.compile(
        ASTSource(
            function,
            types_by_name,
            constexprs=dict(zip(names[len(signature) :], constants)),
            attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
        ),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": num_warps, "num_stages": num_stages},
    )
    meta = made.metadata
    if meta.global_scratch_size or meta.profile_scratch_size:
        return {"error": "the kernel wants scratch memory of Triton's own"}
    image = base64.b64encode(made.asm["cubin"]).decode()
    return {"image": image, "entry": meta.name, "shared_bytes": meta.shared}


def function_of(source):
    """The function ``kernel`` of a module's source. Triton reads the text of functions again, from the line cache."""
    global _modules
    _modules += 1
    name = f"<permalloy kernel {_modules}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType(f"permalloy_kernel_{_modules}")
    sys.modules[module.__name__] = module
    exec(compile(source, name, "exec"), module.__dict__)
    return module.kernel


main()
