"""Decoding on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _arguments
from cbquant.cuda import _driver, _operand, _stream
from cbquant.cuda._array import DeviceArray
from cbquant.cuda._device import set_last_kernel
from cbquant.cuda._error import new_while_capturing
from cbquant.cuda._native import Memory, Native
from cbquant.cuda._weight import Weight, check_weight, place_of, weights_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT = "bfloat16"


def dequant(w: Weight, dtype: Any = DEFAULT, out: Any = None, stream: Any = None) -> Any:
    """Decode a weight on its GPU: the values of `cbquant.dequant`, bit for bit.

    Parameters
    ----------
    w : Weight
        Of any format and shape.
    dtype : "bfloat16", "float16" or "float32"
        Type of the result, as a name or a NumPy dtype. With the default, out's decides.
    out : array, optional
        Where to write: C-contiguous, of w's shape. On w's device (torch, CuPy, Numba, a DeviceArray) from a multiple of
        16 bytes, and nothing is allocated or waited for; an ndarray gets a copy. uint16 takes the bits of bfloat16.
    stream : int or stream, optional
        Where to work: a handle, or a stream of torch, CuPy or cuda.core. Without it, the one on which out's library
        works now, else the default stream.

    Returns
    -------
    DeviceArray or `out`
        Written once the stream has come to it.

    Raises
    ------
    CudaError
        What CUDA refuses; an allocation, or a copy to an ndarray, while the stream captures a graph.
    ValueError
        An `out` that does not fit, on another device, read-only, or over the weight itself.
    TypeError
        A wrong type of weight, dtype, array or stream.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> w = cbquant.QuantTensor(bytes.fromhex("0038") + bytes(range(32)), "q8_0", (32,))
    >>> if cbquant.cuda.is_available():
    ...     y = cbquant.cuda.load(w).dequant("float32").to_numpy()
    """
    check_weight(w, "w")
    name = _arguments.dtype_name(dtype, None)
    wanted = None if name == DEFAULT and out is not None else name
    native = _driver.ready("dequant", w.device)
    target = _stream.choose(stream, w.device, out)
    if out is None or isinstance(out, np.ndarray):
        return _through_new_memory(native, w, name, wanted, out, target)
    place = _operand.take(native, device_array(out, "out"), "out", w.device, target, writable=True)
    check_device_out(place, w.shape, wanted)
    place.check_contiguous("out")
    check_apart(place, w, "w")
    _decode(native, w, float_type(place.dtype), place.memory, place.offset, target)
    return out


def _through_new_memory(
    native: Native, w: Weight, dtype: str, wanted: str | None, out: NDArray[Any] | None, stream: int
) -> Any:
    """A new DeviceArray, or a copy of it in an ndarray."""
    if out is not None:
        _arguments.check_out(out, w.shape, wanted)
        dtype = _arguments.float_dtype_name(out) or dtype
    if native.is_capturing(w.device, stream):
        what = "an array is allocated" if out is None else "an ndarray is copied"
        raise new_while_capturing("dequant", what)
    result = DeviceArray.empty(w.shape, dtype, w.device, stream)
    _decode(native, w, dtype, result._memory, 0, stream)
    return result if out is None else result.to_numpy(out)


def _decode(native: Native, w: Weight, dtype: str, memory: Memory, offset: int, stream: int) -> None:
    if w.layout == "fragments":
        kernel = native.dequant_fragments(weights_of(w), dtype, *place_of(w), memory, offset, stream)
    else:
        n_blocks = w.size // w._info.elements
        kernel = native.dequant(w._info.tag, dtype, *place_of(w), n_blocks, memory, offset, stream)
    set_last_kernel(kernel)


def device_array(array: Any, name: str) -> Any:
    """`array`, where it is one on a device."""
    if not _operand.is_on_device(array):
        where = " on the host" if hasattr(array, "__dlpack__") else ""
        raise TypeError(f"{name}: expected an ndarray or an array on a GPU, got {type(array).__name__}{where}")
    return array


def float_type(dtype: str) -> str:
    """The type of an array's elements, where uint16 stands for bfloat16."""
    return "bfloat16" if dtype == "uint16" else dtype


def check_device_out(place: _operand.Operand, shape: tuple[int, ...], dtype: str | None) -> None:
    """`place` can take a result of that shape, of that dtype or any of the three."""
    kind = float_type(place.dtype)
    if kind not in _arguments.DTYPES or kind != (dtype or kind):
        raise TypeError(f"out: expected dtype {dtype or ', '.join(_arguments.DTYPES)}, got {place.dtype}")
    if place.shape != shape:
        raise ValueError(f"out: expected shape {shape}, got {place.shape}")


def check_apart(out: _operand.Operand, w: Weight, name: str) -> None:
    """`out` is not memory of the weight's."""
    begin, end = out.range
    if begin < w._memory.address + w._memory.nbytes and w._memory.address < end:
        raise ValueError(f"out: expected memory of its own, it overlaps {name}")
