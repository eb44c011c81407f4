"""Compiles generated kernels for a GPU that need not be there."""

from __future__ import annotations

from .interpreter import function


def compile_launch(launch, folder, capability=90):
    """Triton's compiled kernel (`asm` has its PTX and cubin); pointers and sizes aligned as the launch promises."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {a["name"]: a["type"] for a in launch["args"]}
    signature.update((name, "constexpr") for name, _ in launch["constants"])
    aligned = [i for i, a in enumerate(launch["args"]) if "memory" in a or a["multiple_of_16"]]
    source = ASTSource(
        function(launch["source"], launch["kernel"], folder),
        signature,
        constexprs=dict(launch["constants"]),
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    options = {"num_warps": launch["num_warps"], "num_stages": launch["num_stages"]}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
