"""What should hold. A ratio is of speeds measured in the same run."""

from __future__ import annotations

from benchmarks.quantize.inputs import DENSE

#: Times the speed of ggml with one thread and the kernels in use: of dense rows, by format.
DENSE_ROWS = {
    **dict.fromkeys(("iq4_nl", "iq4_xs"), 30.0),
    **dict.fromkeys(("q2_k", "q4_k", "q5_k", "q6_k"), 7.0),
    "q3_k": 6.0,
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq3_xxs", "iq3_s"), 7.0),
    "iq2_s": 6.0,
    **dict.fromkeys(("q8_0", "q4_0", "mxfp4", "nvfp4"), 4.0),
}
#: The same for every format and kind of rows.
EACH = 3.0
#: Times the speed of one thread.
TWO_THREADS = 1.9
#: Milliseconds that a process's first call of an iq format takes longer than its second, at most.
FIRST_CALL = 50.0


def against_ggml(fmt: str, distribution: str, in_use: bool) -> float | None:
    """The target against ggml, where there is one.

    >>> [against_ggml(*case, True) for case in (("iq4_nl", "dense"), ("iq4_nl", "spike"), ("q5_1", "dense"))]
    [30.0, 3.0, 3.0]
    >>> against_ggml("iq4_nl", "dense", False)
    """
    if not in_use:
        return None
    return DENSE_ROWS.get(fmt, EACH) if distribution == DENSE else EACH


def of_one_thread(threads: int) -> float | None:
    """The target for several threads against one, where there is one."""
    return TWO_THREADS if threads == 2 else None
