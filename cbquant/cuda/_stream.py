"""Streams: handles of CUDA, as numbers or as objects of other libraries."""

from __future__ import annotations

import sys
from typing import Any

# CUDA's own names for the default streams: the legacy one is also 0, which is what stands for it here.
LEGACY, PER_THREAD = 1, 2


def handle(stream: Any) -> int:
    """The handle of a stream; 0 for the default stream. None is for `choose`."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        number = stream
    else:
        try:
            number = int(_handle_of(stream))
        except (TypeError, ValueError, LookupError):
            kind = type(stream).__name__
            hint = "expected None, a handle or a stream of torch, CuPy or cuda.core"
            raise TypeError(f"stream: {hint}, got {kind}") from None
    if not 0 <= number < 2**64:
        raise ValueError(f"stream: expected a handle from 0, got {number}")
    return 0 if number == LEGACY else number


def _handle_of(stream: Any) -> Any:
    """What a stream of a library says is its handle; None of anything else."""
    protocol = getattr(stream, "__cuda_stream__", None)  # cuda.core's: (version, handle)
    if protocol is not None:
        return (protocol() if callable(protocol) else protocol)[1]
    return getattr(stream, "cuda_stream", getattr(stream, "ptr", None))  # torch; CuPy


def choose(stream: Any, device: int, *arrays: Any) -> int:
    """The stream to work on: the one that is given, else that on which the first array's library works now."""
    if stream is not None:
        return handle(stream)
    for array in arrays:
        current = _current_of(array, device)
        if current is not None:
            return handle(current)
    return 0


def _current_of(array: Any, device: int) -> Any:
    """The stream of an array's library; None where it has no such thing, or is no array."""
    library = type(array).__module__.partition(".")[0]
    if library == "torch":
        return sys.modules["torch"].cuda.current_stream(device)
    if library == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream()
    own = getattr(array, "_stream", None) if library == "cbquant" else None
    if own is not None:
        return own
    interface = None if hasattr(array, "__dlpack__") else getattr(array, "__cuda_array_interface__", None)
    return interface.get("stream") if interface else None


def for_others(stream: int) -> int:
    """The handle as DLPack and __cuda_array_interface__ want it, where 0 is not allowed."""
    return stream or LEGACY
