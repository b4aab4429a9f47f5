"""What should hold. A ratio is of speeds measured in the same run."""

from __future__ import annotations

#: Of the speed of memory, with two threads on a whole prompt.
OF_MEMORY = 0.8
#: Times the speed of torch in eager mode, with as many threads, on a whole prompt in float32.
OF_TORCH = 3.0

#: Of the speed of reading memory or of that of multiply-adds, whichever is less: attention and the indexer.
OF_READING, OF_MULTIPLYING = 0.8, 0.6
#: Times the speed of NumPy's argpartition and sort, and of torch.topk, with one thread: 512 of 65 536 scores.
TOPK_OF_NUMPY, TOPK_OF_TORCH = 5.0, 3.0


def of_memory(operator: str, dtype: str, threads: int) -> float | None:
    """The target next to memory, where there is one.

    >>> of_memory("partial_rope", "float32", 2), of_memory("partial_rope", "bfloat16", 2)
    (0.8, None)
    """
    if threads != 2 or (operator == "partial_rope" and dtype != "float32"):
        return None
    return OF_MEMORY


def of_torch(operator: str, is_prompt: bool) -> float | None:
    """The target next to torch, where there is one."""
    promised = ("mhc_sinkhorn_split", "router_sqrtsoftplus", "compressor_pool")
    return OF_TORCH if is_prompt and operator.startswith(promised) else None


def of_limits(operator: str) -> float | None:
    """The target of a time that the limits allow, where there is one.

    >>> of_limits("sdpa_decode_sink, k is v"), of_limits("mla_decode")
    (1.0, None)
    """
    return 1.0 if operator.startswith(("sdpa_decode_sink", "indexer")) else None


def of_topk(peer: str, n: int, k: int) -> float | None:
    """The target of indexer_topk next to a peer, where there is one."""
    if (n, k) != (65_536, 512):
        return None
    return TOPK_OF_NUMPY if peer == "NumPy" else TOPK_OF_TORCH
