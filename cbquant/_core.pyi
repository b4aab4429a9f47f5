"""Types of the C module (csrc/bind): low-level functions on C-contiguous arrays."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_THREADS: Final[int]

# csrc/bind/decode.c
def formats() -> list[tuple[str, int, int, int, str, int, bool, bool, str]]: ...
def table(name: str, /) -> NDArray[Any]: ...
def dequant(
    src: NDArray[np.uint8],
    fmt: str,
    dst: NDArray[Any],
    dtype: str = "float32",
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
) -> None: ...
def dequant_simple(src: Any, fmt: Any, out: Any, threads: Any, /) -> NDArray[Any] | None: ...
def nonfinite(src: NDArray[np.uint8], fmt: str, mask: NDArray[np.uint8], threads: int = 0, /) -> None: ...

# csrc/bind/products.c
def quantize(
    x: NDArray[Any],
    source: str,
    fmt: str,
    out: NDArray[np.uint8],
    rows: int,
    k: int,
    imatrix: NDArray[np.float32] | None = None,
    allow_nonfinite: bool = False,
    threads: int = 0,
    isa: str | None = None,
    improve: bool = False,
    out_is_new: bool = False,
) -> None: ...
def matmul(
    x: NDArray[Any],
    dtype: str,
    w: NDArray[np.uint8],
    fmt: str,
    out: NDArray[Any],
    out_dtype: str,
    m: int,
    n: int,
    k: int,
    precision: str = "f32",
    threads: int = 0,
    isa: str | None = None,
) -> None: ...

# csrc/bind/planes.c: `planes` is what cbquant.planes._layout.Layout.planes() makes
def plane_formats() -> list[tuple[str, str, int, bool, bool, int, str, bool]]: ...
def dequant_planes(
    planes: tuple[Any, ...],
    out: NDArray[Any],
    dtype: str = "float32",
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
) -> None: ...
def matmul_planes(
    x: NDArray[Any],
    dtype: str,
    planes: tuple[Any, ...],
    out: NDArray[Any],
    out_dtype: str,
    m: int,
    precision: str = "f32",
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def quantize_planes(
    x: NDArray[Any], source: str, planes: tuple[Any, ...], threads: int = 0, isa: str | None = None
) -> float: ...

# csrc/bind/codecs.c
def code_kinds() -> list[tuple[str, int, int, int, int, str, float]]: ...
def decode_codes(
    codes: NDArray[np.uint8],
    kind: str,
    out: NDArray[Any],
    dtype: str = "float32",
    packed: bool = False,
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
) -> None: ...
def encode_codes(
    x: NDArray[Any],
    source: str,
    kind: str,
    out: NDArray[np.uint8],
    packed: bool = False,
    saturate: bool = True,
    threads: int = 0,
    isa: str | None = None,
    rule: str = "floor",
    emax: int = 0,
    mbits: int = 0,
    largest: float = 1.0,
) -> None: ...

# csrc/bind/operators.c: arrays are float32, float16 or uint16, which stands for bfloat16
def vector_add(
    a: NDArray[Any],
    b: NDArray[Any],
    out: NDArray[Any],
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
) -> None: ...
def router(
    logits: NDArray[Any],
    bias: NDArray[Any],
    unbiased: NDArray[Any],
    biased: NDArray[Any],
    scoring: str = "sqrtsoftplus",
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def route(
    logits: NDArray[Any],
    bias: NDArray[Any],
    ids: NDArray[np.int32],
    weights: NDArray[Any],
    k: int,
    scale: float = 1.0,
    normalize: bool = False,
    scoring: str = "sqrtsoftplus",
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def compressor_pool(
    gate: NDArray[Any],
    kv: NDArray[Any],
    ape: NDArray[Any],
    out: NDArray[Any],
    ape_on_gate: bool = False,
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def mhc_sinkhorn_split(
    mix: NDArray[Any],
    scale: NDArray[Any],
    base: NDArray[Any],
    pre: NDArray[Any],
    post: NDArray[Any],
    comb: NDArray[Any],
    iters: int = 20,
    eps: float = 1e-6,
    ends_with_columns: bool = False,
    src_first: bool = False,
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def mhc_collapse(
    pre: NDArray[Any],
    h: NDArray[Any],
    out: NDArray[Any],
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
) -> None: ...
def mhc_expand(
    block_out: NDArray[Any],
    post: NDArray[Any],
    comb: NDArray[Any],
    residual: NDArray[Any],
    out: NDArray[Any],
    src_first: bool = False,
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
) -> None: ...
def partial_rope(
    x: NDArray[Any],
    positions: NDArray[np.float64],
    out: NDArray[Any],
    n_rot: int = 64,
    theta: float = 10000.0,
    inverse: bool = False,
    neighbours: bool = False,
    threads: int = 0,
    isa: str | None = None,
    stream: int = -1,
    frequencies: NDArray[np.float64] | None = None,
) -> None: ...
def swiglu(
    gate: NDArray[np.float32],
    up: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int = 0,
    isa: str | None = None,
) -> None: ...

# csrc/bind/attention.c
def exp(x: NDArray[np.float32], out: NDArray[np.float32], isa: str | None = None) -> None: ...
def indexer_topk(
    score: NDArray[Any],
    k: int,
    out: NDArray[np.int32],
    threads: int = 0,
    isa: str | None = None,
    lengths: NDArray[np.int64] | None = None,
) -> None: ...
def sdpa(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    out: NDArray[Any],
    scale: float,
    sink: NDArray[np.float32] | None = None,
    lengths: NDArray[np.int64] | None = None,
    indices: NDArray[np.int64] | None = None,
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def mla(
    q_nope: NDArray[Any],
    q_rope: NDArray[Any],
    w_uk: NDArray[Any],
    ckv: NDArray[Any],
    k_rope: NDArray[Any],
    out: NDArray[Any],
    scale: float,
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def indexer_score(
    q: NDArray[Any],
    k: NDArray[Any],
    w: NDArray[Any],
    out: NDArray[np.float32],
    threads: int = 0,
    isa: str | None = None,
) -> None: ...
def indexer_select(
    q: NDArray[Any],
    k: NDArray[Any],
    w: NDArray[Any],
    topk: int,
    out: NDArray[np.int32],
    threads: int = 0,
    isa: str | None = None,
    lengths: NDArray[np.int64] | None = None,
) -> None: ...
def gather_list(
    topk: NDArray[np.int64],
    n: NDArray[np.int64],
    window: NDArray[np.int64],
    out: NDArray[np.int32],
    counts: NDArray[np.int64],
    /,
) -> None: ...

# csrc/bind/machine.c
def isa_levels() -> list[tuple[str, bool, str]]: ...
def isa() -> str: ...
def x86_features(leaf1_ecx: int, leaf7_ebx: int, leaf7_ecx: int, leaf7_1_eax: int, xcr0: int, /) -> int: ...
def num_threads() -> int: ...
def set_num_threads(n: int, /) -> None: ...
def pool_size() -> int: ...
def cgroup_cpus(membership: str, mount: str, /) -> int: ...
def last_cache_bytes() -> int: ...
