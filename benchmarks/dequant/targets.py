"""What should hold. A ratio is of speeds (at least) or of times (at most), measured in the same run."""

from __future__ import annotations

from cbquant._formats import Format

# Block formats are judged. To read a plain type costs as much as to write it, or more: there a fill is no measure.

#: Decoding to float32 in memory with two threads or more, as a part of the ceiling: filling the same memory.
TO_MEMORY = 0.9
#: Decoding in cache with one thread, as a part of filling the same cache.
IN_CACHE_DEFAULT = 0.35
IN_CACHE = {
    **dict.fromkeys(("q4_0", "q4_k", "q3_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "q8_0"), 0.45),
    **dict.fromkeys(("iq3_s", "iq3_xxs", "iq1_m"), 0.25),
}
#: Times the speed of another decoder with one thread: of the geometric mean over formats, and of each format.
PEER_MEANS = {"ggml": 8.0, "gguf-py": 60.0}
PEER_EACH = {"ggml": 1.0}
#: Decoding into a new array, in times of allocating and filling one.
FRESH = 1.1


def to_memory(fmt: Format, dtype: str, threads: int) -> float | None:
    """The target for decoding to memory, where there is one."""
    return TO_MEMORY if fmt.kind != "plain" and dtype == "float32" and threads > 1 else None


def fresh(fmt: Format) -> float | None:
    """The target for decoding into a new array, where there is one."""
    return FRESH if fmt.kind != "plain" else None


def peer_each(fmt: Format, peer: str) -> float | None:
    """The target for one format against a peer, where there is one."""
    return PEER_EACH.get(peer) if fmt.kind != "plain" else None
