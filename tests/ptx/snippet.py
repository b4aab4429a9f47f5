"""A few lines of PTX, run on arrays: for tests of single instructions."""

from __future__ import annotations

import numpy as np

from . import load, run
from .memory import Buffer

_HEADER = ".version 9.0\n.target sm_100\n.address_size 64\n"


def kernel(body: str, params: str = "", before: str = "") -> str:
    """A module of one kernel `k` with registers %p, %h (16 bits), %r, %f, %q (64 bits), %t (f64) to spare."""
    return f"""{_HEADER}{before}
.visible .entry k({params}) {{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %q<20>; .reg .f64 %t<9>;
    {body}
    ret;
}}"""


def evaluate(code: str, result: np.dtype | type, **inputs: np.ndarray) -> np.ndarray:
    """Run `code` once for each element of the inputs, which it finds in the registers %a, %b, ...

    The code leaves its result in %d. Registers have the inputs' and the result's width.

    >>> evaluate("add.s32 %d, %a, %b;", np.int32, a=np.array([1, 2], np.int32), b=np.array([3, -5], np.int32))
    array([ 4, -3], dtype=int32)
    """
    inputs = {name: np.ascontiguousarray(values) for name, values in inputs.items()}
    count = len(next(iter(inputs.values())))
    bits = {name: 8 * values.itemsize for name, values in inputs.items()}
    bits["d"] = 8 * np.dtype(result).itemsize
    lines = [f".reg .b{width} %{name}; .reg .b64 %at_{name};" for name, width in bits.items()]
    lines += [".reg .pred %outside; mov.u32 %r18, %ctaid.x; mov.u32 %r19, %tid.x;"]
    lines += ["mad.lo.u32 %r18, %r18, 128, %r19;"]
    lines += [f"setp.ge.u32 %outside, %r18, {count}; @%outside ret;"]
    for name, width in bits.items():
        lines.append(f"ld.param.u64 %at_{name}, [p_{name}];")
        lines.append(f"mad.wide.u32 %at_{name}, %r18, {width // 8}, %at_{name};")
        if name != "d":
            lines.append(f"ld.global.b{width} %{name}, [%at_{name}];")
    lines += [code, f"st.global.b{bits['d']} [%at_d], %d;"]
    params = ", ".join(f".param .u64 p_{name}" for name in bits)
    out = Buffer.poison(count, result)
    run(load(kernel("\n".join(lines), params)), "k", -(-count // 128), 128, [*inputs.values(), out])
    assert not len(out.unwritten())
    return out.array
