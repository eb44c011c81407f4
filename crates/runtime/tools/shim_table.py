"""Writes src/torch/shim_table.rs from the headers of libtorch's generated CPU and CUDA shims and PyTorch's schemas.

    python shim_table.py > ../src/torch/shim_table.rs

The header fixes each C signature for ever (a changed operator gets a new symbol), so the table stays right for other
versions of PyTorch: an operator is only called through its shim while its schema still asks for that very signature.
"""

import pathlib
import re

import torch

CODES = {
    "AtenTensorHandle": "T",
    "AtenTensorHandle*": "t",
    "const AtenTensorHandle*": "H",
    "const AtenTensorHandle**": "h",
    "int64_t": "i",
    "int64_t*": "j",
    "const int64_t*": "L",
    "const int64_t**": "l",
    "double": "d",
    "double*": "e",
    "const double*": "D",
    "const double**": "q",
    "int32_t": "b",
    "int32_t*": "c",
    "const int32_t*": "B",
    "const char*": "s",
    "const char**": "S",
    "AtenGeneratorHandle*": "G",
}


def signature(parameters):
    code, skip = "", False
    params = [re.match(r"(.*?)\s+(\w+)$", p.strip()).groups() for p in parameters.split(",")]
    for (ctype, name), following in zip(params, [*params[1:], ("", "")]):
        if skip:
            skip = False
            continue
        if re.fullmatch(r"ret\d+", name):
            code += "R" if ctype == "AtenTensorHandle*" else "r"
        elif following[1] == name + "_index_":
            code, skip = code + "V", True
        elif not code and name == "out":
            code = "O"
        elif ctype not in CODES:
            return None
        else:
            code, skip = code + CODES[ctype], following[1] == name + "_len_"
    return code


def main():
    folder = pathlib.Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch/generated"
    header = {}
    for device in ("cuda", "cpu"):  # what both have is listed for the CPU; the names differ in nothing but the device
        text = (folder / f"c_shim_{device}.h").read_text()
        for symbol, name, parameters in re.findall(rf"AOTITorchError (aoti_torch_{device}_(\w+))\((.*)\);", text):
            header[name] = (symbol, name, parameters)
    operators = {}
    for s in torch._C._jit_get_all_schemas():
        space, base = s.name.split("::")
        if space == "aten":
            operators.setdefault(base + ("_" + s.overload_name if s.overload_name else ""), []).append(
                (base, s.overload_name or "default")
            )
    rows = {}
    for symbol, name, parameters in header.values():
        code = signature(parameters)
        if code is None or name not in operators or len(operators[name]) != 1 or code.count("O") > 1:
            continue
        base, overload = operators[name][0]
        if "O" in code:  # the functional operator, writing into memory we give
            stem = overload[: -len("out")].rstrip("_")
            overload = stem or "default"
            if not hasattr(getattr(torch.ops.aten, base, None), overload):
                continue
        rows[f"aten.{base}.{overload}"] = (symbol, code)
    print("//! C signatures of the operators that libtorch exports one by one; written by `tools/shim_table.py`.\n")
    print("/// Operator, symbol, signature (codes: see [`super::shims`]); sorted by operator.")
    print("#[rustfmt::skip]\npub(super) static SHIMS: &[(&str, &str, &str)] = &[")
    for op in sorted(rows):
        print(f'    ("{op}", "{rows[op][0]}", "{rows[op][1]}"),')
    print("];")


main()
