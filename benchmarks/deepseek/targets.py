"""What should hold. A ratio is of speeds measured in the same run."""

from __future__ import annotations

#: Of the speed of memory, with two threads on a whole prompt.
OF_MEMORY = 0.8
#: Times the speed of torch in eager mode, with as many threads, on a whole prompt in float32.
OF_TORCH = 3.0


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
