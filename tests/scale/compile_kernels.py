"""Compile every kernel for two generations of GPUs, without one: Triton brings its own compiler. Prints their names."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from unbraid.dictionaries.operations import cuda

CAPABILITIES = (80, 90)
F32, I32, I64, BIT = "*fp32", "*i32", "*i64", "*i1"
KERNELS = {
    "_select": ([F32, BIT, I32, F32, "i32", "i32"], {"COLUMNS": 1024}),
    "_decode": ([I32, F32, I64, F32, F32, *["i32"] * 5], {"DIMENSIONS": 256}),
    "_slot_products": ([I32, I32, F32, F32, F32, *["i32"] * 5], {"DIMENSIONS": 256}),
    "_sum_rows": (
        [I64, I32, F32, F32, F32, F32, I32, F32, I32, F32, F32, F32, F32, *["i32"] * 6],
        {"CENTRED": True, "DIMENSIONS": 256},
    ),
    "_adam_row": ([*[F32] * 6, "i32", *["fp32"] * 4], {"UNIT": True, "DIMENSIONS": 1024}),
}

if __name__ == "__main__":
    for name, (types, settings) in KERNELS.items():
        kernel = getattr(cuda, name)
        signature = dict(zip(kernel.arg_names, [*types, *["constexpr"] * len(settings)], strict=True))
        for capability in CAPABILITIES:
            source = ASTSource(kernel, signature, constexprs=settings)
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
            assert "atom" not in made.asm["ptx"], f"{name} adds where another program may"
            assert made.asm["cubin"]
        print(name)
