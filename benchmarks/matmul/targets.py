"""What should hold. A ratio is of speeds measured in the same run.

What was reached elsewhere with AVX2 is judged only where the kernels in use are those of that level (CBQUANT_ISA=avx2).
"""

from __future__ import annotations

#: Times the speed of the best of these arrangements of ggml's, with two threads or more and 8-bit activations: for
#: every format and number of rows, and of the geometric mean over all.
ARRANGEMENTS = ("plain", "repacked")
GGML_EACH, GGML_MEAN = 1.0, 2.5
#: The same for one row and formats whose codes are looked up in grids.
GGML_GRIDS = 1.5
_GRIDS = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")

#: Bytes of weights a second for one row, as a part of what reading alone reaches, with two threads or more.
BANDWIDTH = dict.fromkeys(("q4_0", "q4_k", "q8_0", "q6_k"), 0.75)
#: Times the speed of one thread, for one row.
TWO_THREADS = 1.7

#: The speed for the next larger number of rows, as a part of that for a smaller one.
STEP = 0.9

#: One core with AVX2: of what 4-bit codes with 16-bit sums reach at most.
PEAK = {
    "q4_0": 0.70,
    "q4_k": 0.72,
    **dict.fromkeys(("mxfp4", "q4_1", "q2_k", "q3_k"), 0.60),
    **dict.fromkeys(("q5_0", "q5_1", "q5_k", "q6_k"), 0.55),
    **dict.fromkeys(("iq4_nl", "iq4_xs", "nvfp4"), 0.45),
    **dict.fromkeys(("q8_0", *_GRIDS), 0.42),
}
#: One core with AVX2 (at 2.8 GHz), one row: G operations a second, the best that was known.
KNOWN = {
    "q4_0": 79.0,
    "q4_k": 75.0,
    "mxfp4": 73.0,
    "q2_k": 69.0,
    "iq4_xs": 65.0,
    "iq4_nl": 52.0,
    "q6_k": 46.0,
    "q8_0": 41.0,
    "iq2_xxs": 31.0,
    "iq3_s": 16.0,
}
_AVX2 = "avx2"


def against_ggml(fmt: str, m: int, mode: str, threads: int) -> float | None:
    """The target for one product, where there is one."""
    if mode != "q8" or threads < 2:
        return None
    return GGML_GRIDS if m == 1 and fmt in _GRIDS else GGML_EACH


def mean_against_ggml(mode: str, threads: int) -> float | None:
    """The target for the geometric mean over formats and rows, where there is one."""
    return GGML_MEAN if mode == "q8" and threads > 1 else None


def against_sgemm(m: int, mode: str, threads: int) -> float | None:
    """The target for float32 products against those with decoded weights, where there is one.

    >>> [against_sgemm(m, "f32", 2) for m in (1, 2, 8, 16, 32, 64)]
    [None, 2.5, 2.5, 1.8, None, 0.95]
    """
    if mode != "f32" or threads < 2:
        return None
    if m >= 64:
        return 0.95
    return 1.8 if m == 16 else 2.5 if 2 <= m <= 8 else None


def of_bandwidth(fmt: str, mode: str, threads: int) -> float | None:
    """The target for one row as a part of the speed of reading, where there is one."""
    return BANDWIDTH.get(fmt) if mode == "q8" and threads > 1 else None


def of_one_thread(mode: str, threads: int) -> float | None:
    """The target for two threads against one, where there is one."""
    return TWO_THREADS if mode == "q8" and threads == 2 else None


def of_peak(fmt: str, mode: str, threads: int, level: str) -> float | None:
    """The target for products of integers as a part of what the core can do at most, where there is one."""
    return PEAK.get(fmt) if mode == "q8" and threads == 1 and level == _AVX2 else None


def known(fmt: str, m: int, mode: str, threads: int, level: str) -> float | None:
    """The target in G operations a second, where there is one."""
    return KNOWN.get(fmt) if m == 1 and mode == "q8" and threads == 1 and level == _AVX2 else None
