"""A small interpreter for the PTX that nvcc writes: CUDA kernels tested without a GPU (see README.md).

>>> import numpy as np
>>> module = load('''
... .version 7.0
... .target sm_80
... .address_size 64
... .visible .entry twice(.param .u64 x) {
...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
...     ld.param.u64 %rd1, [x];
...     mov.u32 %r1, %tid.x;
...     mul.wide.u32 %rd2, %r1, 4;
...     add.s64 %rd3, %rd1, %rd2;
...     ld.global.u32 %r2, [%rd3];
...     shl.b32 %r2, %r2, 1;
...     st.global.u32 [%rd3], %r2;
...     ret;
... }''')
>>> x = np.array([1, 2, 3], np.uint32)
>>> run(module, "twice", grid=1, block=3, args=[x])
>>> x
array([2, 4, 6], dtype=uint32)
"""

from __future__ import annotations

from .launch import run
from .memory import POISON, Buffer
from .program import Loaded, load
from .schedule import PtxError
from .tokens import PtxSyntaxError

__all__ = ["POISON", "Buffer", "Loaded", "PtxError", "PtxSyntaxError", "load", "run"]
