"""The functions of the package: arguments are checked and shaped here, the work is done in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_out, check_shape, check_threads, dtype_name, empty
from cbquant._buffer import as_bytes
from cbquant._formats import Format, get

if TYPE_CHECKING:
    from numpy.typing import NDArray

# For new memory: the system has just written its zeros, and they are still in the cache.
_THROUGH_CACHE = 0


def dequant(
    buf: Any,
    fmt: str,
    shape: int | Sequence[int] | None = None,
    dtype: Any = "float32",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Decode block-quantized weights.

    Each value is the exact real value rounded once to float32 (nearest, ties to even), whatever the instruction set
    and the number of threads; float16 and bfloat16 are that float32 rounded once more. Layouts: GGUF (ggml), OCP MX
    for mxfp4; `cbquant.reference` is the same in NumPy.

    Parameters
    ----------
    buf : buffer or array
        Whole blocks, row after row: bytes, memoryview, uint8 array (read-only, memory-mapped, any alignment), array
        of records, torch tensor on the CPU. Contiguous ones are not copied.
    fmt : str
        Name of the format: see `cbquant.formats`.
    shape : int or sequence of int, optional
        Shape of the result. Its last dimension, K, is a multiple of the format's block. Without it the result is
        ``[..., K]`` for a uint8 array whose last axis is whole blocks, else 1-D.
    dtype : "float32", "float16" or "bfloat16"
        Type of the result, as a name or a NumPy dtype. "bfloat16" is ``ml_dtypes.bfloat16`` (the extra
        ``cbquant[bf16]``) unless `out` is given.
    out : ndarray, optional
        Where to write: C-contiguous, writable, of the result's shape and dtype, apart from `buf`. A uint16 array
        takes the bits of bfloat16. With the default `dtype`, out's decides.
    threads : int, optional
        Threads to use, from 1; the default is `cbquant.set_num_threads`, ``CBQUANT_NUM_THREADS`` or the cores at
        hand. Small inputs stay on the caller's thread.

    Returns
    -------
    ndarray
        `out`, or a new array.

    Raises
    ------
    ValueError
        Unknown format, bytes that are not whole blocks or do not fit `shape`, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of buffer, dtype or number.
    ImportError
        bfloat16 without ml_dtypes.

    Examples
    --------
    A block of q8_0: the scale 0.5 as float16, then 32 signed bytes.

    >>> import cbquant
    >>> block = bytes.fromhex("0038") + bytes(range(32))
    >>> cbquant.dequant(block, "q8_0")[:5]
    array([0. , 0.5, 1. , 1.5, 2. ], dtype=float32)
    >>> cbquant.dequant(block * 4, "q8_0", shape=(2, 64), dtype="float16").shape
    (2, 64)
    """
    if shape is None and isinstance(dtype, str) and dtype == "float32":
        # Most calls: checked in C, because the checks below take longer than to decode 30 000 weights.
        done = _core.dequant_simple(buf, fmt, out, threads)
        if done is not None:
            return done
    f = get(fmt)
    data = as_bytes(buf, f.name)
    kind = dtype_name(dtype, out)
    result_shape = _result_shape(data, f, shape, out)
    if out is None:
        result = empty(result_shape, kind)
        _core.dequant(data, f.name, result, kind, check_threads(threads), None, _THROUGH_CACHE)
        return result
    result = check_out(out, result_shape, kind)
    if np.may_share_memory(data, out) or (isinstance(buf, np.ndarray) and np.may_share_memory(buf, out)):
        raise ValueError("out: expected memory of its own, it overlaps buf")
    _core.dequant(data, f.name, result, kind, check_threads(threads))
    return out


def _result_shape(
    data: NDArray[np.uint8], f: Format, shape: int | Sequence[int] | None, out: NDArray[Any] | None
) -> tuple[int, ...]:
    if shape is not None:
        return check_shape(f, shape, data.size)
    if data.size % f.bytes:
        raise ValueError(f"buf: {data.size} bytes are not a multiple of {f.bytes} (one block of {f.name})")
    if data.shape[-1] % f.bytes == 0:
        inferred = (*data.shape[:-1], data.shape[-1] // f.bytes * f.elements)
    else:
        inferred = (data.size // f.bytes * f.elements,)
    # A flat buffer into a matrix whose rows are whole blocks is what the caller means.
    if isinstance(out, np.ndarray) and out.ndim > 1 and out.shape[-1] % f.elements == 0 and inferred == (out.size,):
        return out.shape
    return inferred


def validate(buf: Any, fmt: str, threads: int | None = None) -> NDArray[np.int64]:
    """Indices of the blocks whose scale or minimum is NaN or infinite (for a plain type: the values that are).

    Such blocks decode to NaN or infinities: files with them are damaged, or were made from such weights.

    Parameters
    ----------
    buf : buffer or array
        Whole blocks, as for `dequant`.
    fmt : str
        Name of the format.
    threads : int, optional
        As for `dequant`.

    Returns
    -------
    ndarray of int64
        Ascending; empty where all is well. Block i begins at byte ``i * bytes`` of the format.

    Raises
    ------
    ValueError, TypeError
        As `dequant`.

    Examples
    --------
    >>> import cbquant
    >>> good, bad = bytes.fromhex("003c") + bytes(32), bytes.fromhex("007c") + bytes(32)
    >>> cbquant.validate(good + bad + good, "q8_0")
    array([1])
    """
    f = get(fmt)
    data = as_bytes(buf, f.name)
    if data.size % f.bytes:
        raise ValueError(f"buf: {data.size} bytes are not a multiple of {f.bytes} (one block of {f.name})")
    mask = np.empty(data.size // f.bytes, np.uint8)
    _core.nonfinite(data, f.name, mask, check_threads(threads))
    return np.flatnonzero(mask).astype(np.int64, copy=False)


def set_num_threads(n: int | None) -> None:
    """Set the threads of calls that name none; None is the default again (``CBQUANT_NUM_THREADS``, else the cores
    that the affinity mask and the cgroup leave).

    Raises
    ------
    ValueError, TypeError
        `n` is no number from 1 to 512.

    Examples
    --------
    >>> import cbquant
    >>> cbquant.set_num_threads(1)
    >>> cbquant.info()["threads"]
    1
    >>> cbquant.set_num_threads(None)
    """
    _core.set_num_threads(check_threads(n, "n"))


class Info(dict[str, Any]):
    """A dict that prints as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{key.ljust(width)}  {_plain(value)}" for key, value in self.items())

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(_plain(v))}</td></tr>" for k, v in self.items())
        return f"<table>{rows}</table>"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def info() -> Info:
    """What this build of cbquant is and what it uses on this machine.

    Returns
    -------
    dict
        Prints as a table. Keys: version, numpy, isa (the level in use), kernels (the set of kernels of that level),
        isa_available, isa_built, threads, last_cache_bytes, formats, cuda.

    Raises
    ------
    ValueError
        CBQUANT_ISA or CBQUANT_NUM_THREADS is set to something that cannot be.

    Examples
    --------
    >>> import cbquant
    >>> cbquant.info()["isa"] in cbquant.info()["isa_available"]
    True
    """
    from cbquant import __version__
    from cbquant.cuda import _driver

    levels = _core.isa_levels()
    isa = _core.isa()
    return Info(
        version=__version__,
        numpy=np.__version__,
        isa=isa,
        kernels=next(kernels for name, _, kernels in levels if name == isa),
        isa_available=[name for name, available, _ in levels if available],
        isa_built=[name for name, _, _ in levels],
        threads=_core.num_threads(),
        last_cache_bytes=_core.last_cache_bytes(),
        formats=len(_core.formats()),
        cuda=_driver.description(),
    )
