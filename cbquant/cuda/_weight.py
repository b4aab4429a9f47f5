"""`Weight`: a tensor in a device's memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _formats
from cbquant._arguments import check_whole, check_word
from cbquant._buffer import PLAIN_DTYPES, as_bytes
from cbquant._formats import Format
from cbquant.cuda import _driver, _layouts, _stream, _workspace
from cbquant.cuda._error import not_while_capturing
from cbquant.cuda._native import Memory, Native, Problem, Weights
from cbquant.tensor import QuantTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cbquant.planes._layout import Layout

PRECISIONS = ("bf16", "f32")
# Blocks begin at a line of the cache, behind a margin of which kernels read the end.
_BEFORE = 256
# What `load` makes room for: products of so many rows of x; of tokens that choose so many experts each.
_ROWS, _PICKS = 64, 8


class Weight:
    """A tensor on a GPU, in its own format: `load` makes it, and it frees its memory when it goes.

    Attributes
    ----------
    shape : tuple of int
        In elements, in NumPy's order.
    format : str
        Name of the format.
    device : int
        The index of its device.
    layout : "blocks" or "fragments"
        How it lies in memory: see `load`.
    """

    __slots__ = ("__weakref__", "_info", "_memory", "_planes", "device", "format", "layout", "shape")

    shape: tuple[int, ...]
    format: str
    device: int
    layout: str
    _info: Format  # of its blocks
    _planes: Layout | None  # those that the blocks were made of, without their codes
    _memory: Memory

    def __init__(self) -> None:
        raise TypeError("a Weight is made by cbquant.cuda.load(tensor)")

    @classmethod
    def _wrap(
        cls, memory: Memory, info: Format, shape: tuple[int, ...], layout: str, planes: Layout | None = None
    ) -> Weight:
        self = object.__new__(cls)
        self._memory, self._info, self._planes = memory, info, planes
        self.shape, self.device, self.layout = shape, memory.device, layout
        self.format = info.name if planes is None else planes.format.name
        return self

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of its blocks; fragments add what whole tiles need."""
        return self.size // self._info.elements * self._info.bytes

    def __repr__(self) -> str:
        return f"Weight({self.format}, shape={self.shape}, {self.nbytes:,} bytes, cuda:{self.device})"

    def to_host(self) -> QuantTensor:
        """A copy on the host: the bytes that were loaded; of planes, their codes and scales.

        Returns
        -------
        QuantTensor

        Raises
        ------
        CudaError
            The copy failed.
        """
        raw = np.empty(self.nbytes, np.uint8)
        native = _driver.ready("to_host", self.device)
        blocks, offset = place_of(self)
        if self.layout == "fragments":
            fragments, blocks = blocks, native.malloc(self.device, self.nbytes)
            native.unpack(weights_of(self), blocks, 0, fragments, 0, 0)
        native.download(blocks, offset, raw, 0)
        if self._planes is None:
            return QuantTensor(raw, self.format, self.shape)
        from cbquant.cuda import _planes

        return _planes.from_blocks(native, raw, self._info, self._planes)

    def dequant(self, dtype: Any = "bfloat16", out: Any = None, stream: Any = None) -> Any:
        """The decoded values: `cbquant.cuda.dequant`."""
        from cbquant.cuda._dequant import dequant

        return dequant(self, dtype, out, stream)


def load(tensor: QuantTensor | NDArray[Any], device: int = 0, stream: Any = None, *, layout: str = "auto") -> Weight:
    """Copy a tensor to a GPU, in its own format.

    Parameters
    ----------
    tensor : QuantTensor or ndarray
        Blocks of a format of `cbquant.formats`, ``[N, K]``, ``[E, N, K]`` for experts, or of any shape to decode; an
        ndarray of a plain type (float32, float16, bfloat16, float64, integers) is copied as that. Planes of FP8, MX,
        nf4 and fp4 become blocks of 32 codes and a float32 scale; mxfp4 GGUF's blocks; nvfp4 these too, or where it has
        a number for the tensor, blocks of 64 with that number.
    device : int
        The index of the GPU.
    stream : int or stream, optional
        The stream of the copy, which is done when `load` returns. Workspace for products is reserved for this stream.
    layout : "auto", "blocks" or "fragments"
        How the weights lie in the device's memory. "blocks": as they are in files. "fragments": the same bits in the
        order in which products take them, which costs fewer instructions for each weight; rows count by 64, and K by
        128 or 256. "auto": fragments of ``[N, K]`` and ``[E, N, K]`` of the formats that have them, else blocks.
        Results differ as sums in another order do; `Weight.to_host` gives the same bytes back. Hopper's kernel for
        more than 64 rows of x takes blocks only: say so for weights that see long prompts more than single tokens.

    Returns
    -------
    Weight

    Raises
    ------
    CudaError
        There is no GPU, or too little memory on it.
    ValueError
        Rows of planes that are no multiple of 32 (of nvfp4: 64); nf4 and fp4 whose scales belong to no multiple of 32
        elements, FP8 with such tiles; an unknown type. Fragments of a format or of a shape that has none. There is no
        such device.
    TypeError
        A wrong type of tensor.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> w = cbquant.QuantTensor(bytes.fromhex("003c") + bytes(32), "q8_0", (1, 32))
    >>> if cbquant.cuda.is_available():
    ...     y = cbquant.cuda.matmul(np.ones((1, 32), np.float32), cbquant.cuda.load(w))
    """
    from cbquant.planes._tensor import PlanesTensor

    planes: Layout | None = None
    if isinstance(tensor, PlanesTensor):
        from cbquant.cuda import _planes

        native = _driver.ready("load", device)
        raw, info, planes = _planes.to_blocks(native, tensor)
        shape = tensor.shape
        chosen = _layouts.choose(layout, info.name, shape)
    else:
        raw, info, shape = _blocks(tensor)
        chosen = _layouts.choose(layout, info.name, shape)
        native = _driver.ready("load", device)
    target = _stream.choose(stream, device)
    if native.is_capturing(device, target):
        raise not_while_capturing("load", "a tensor cannot be copied while a graph is captured: load it before")
    memory = _upload(native, device, raw, target)
    if chosen == "fragments":
        blocks, tensor_shape = memory, _weights(info, shape)
        memory = native.malloc(device, native.fragment_bytes(tensor_shape))
        native.pack(tensor_shape, blocks, _BEFORE, memory, 0, target)
    native.synchronize(device, target)
    weight = Weight._wrap(memory, info, shape, chosen, planes)
    if weight.ndim in (2, 3) and weight.size and native.has_product(info.tag):
        _reserve(native, weight, _ROWS, _PICKS, PRECISIONS, target)
    return weight


def _upload(native: Native, device: int, raw: NDArray[np.uint8], stream: int) -> Memory:
    """The bytes with a margin on both sides."""
    end = _BEFORE + raw.nbytes
    memory = native.malloc(device, end + native.MARGIN)
    native.fill(memory, 0, _BEFORE, 0, stream)
    native.upload(memory, _BEFORE, raw, stream)
    native.fill(memory, end, native.MARGIN, 0, stream)
    return memory


def _blocks(tensor: Any) -> tuple[NDArray[np.uint8], Format, tuple[int, ...]]:
    """The bytes to copy, one after the other, with their format and shape."""
    if isinstance(tensor, QuantTensor):
        tensor._require_known("loaded")
        info = _formats.get(tensor.format)
        return np.ascontiguousarray(tensor.raw).reshape(-1), info, tensor.shape
    if not isinstance(tensor, np.ndarray):
        raise TypeError(f"tensor: expected a QuantTensor or an ndarray, got {type(tensor).__name__}")
    name = next((fmt for fmt, dtype in PLAIN_DTYPES.items() if dtype == tensor.dtype.name), None)
    if name is None:
        hint = "blocks need their format: cbquant.QuantTensor(buf, fmt, shape)"
        raise TypeError(f"tensor: expected {', '.join(PLAIN_DTYPES.values())}, got {tensor.dtype.name}; {hint}")
    raw = as_bytes(np.ascontiguousarray(tensor).reshape(-1), name, "tensor")
    return raw, _formats.get(name), tensor.shape


def reserve(w: Weight, m: int, *, picks: int = _PICKS, precision: str | None = None, stream: Any = None) -> None:
    """Make room for products of up to `m` rows with a weight on a stream, so that a graph can be captured there.

    `load` does it for 64 rows, and for 64 tokens with 8 experts each, on its own stream; a call outside of a capture
    makes what it lacks.

    Parameters
    ----------
    w : Weight
        ``[N, K]`` or experts ``[E, N, K]``.
    m : int
        Rows of x; for experts, tokens.
    picks : int
        Experts of each token.
    precision : "bf16" or "f32", optional
        That of the products; both without it.
    stream : int or stream, optional
        The stream of the products: see `matmul`.

    Raises
    ------
    CudaError
        There is no GPU, or too little memory on it; a graph is being captured.
    ValueError, TypeError
        A weight that products do not take, a wrong number, precision or stream.
    """
    check_product(w, "w", (2, 3))
    rows, chosen = check_whole("m", m), check_whole("picks", picks)
    precisions = PRECISIONS if precision is None else (check_word("precision", precision, PRECISIONS),)
    native = _driver.ready("reserve", w.device)
    if w.shape[-1] == 0:  # products are zeros, without a kernel
        return
    _reserve(native, w, rows, chosen, precisions, _stream.choose(stream, w.device))


def _reserve(native: Native, w: Weight, m: int, picks: int, precisions: tuple[str, ...], stream: int) -> None:
    nbytes = 0
    for precision in precisions:
        # Small products take another kernel, whose workspace may be the larger one.
        for rows in {1, m}:
            sizes = [native.product_workspace(w.device, problem(w, rows, picks, precision))]
            if w.ndim == 3:
                sizes.append(4 * rows * picks * w.shape[1])  # the products before they are added up
            nbytes = max(nbytes, _workspace.total(sizes))
    workspace = _workspace.of(native, w.device, stream)
    with workspace.lock:
        if nbytes > workspace.nbytes:
            workspace.at_least(nbytes, "reserve", native.is_capturing(w.device, stream))


def problem(w: Weight, m: int, picks: int, precision: str) -> Problem:
    """A product as C takes it."""
    *experts, n, k = w.shape
    precision_code, layout = PRECISIONS.index(precision), int(w.layout == "fragments")
    return w._info.tag, precision_code, m, n, k, experts[0] if experts else 0, picks if experts else 1, layout


def weights_of(w: Weight) -> Weights:
    """Weights in fragments, as C takes them."""
    return _weights(w._info, w.shape)


def _weights(info: Format, shape: tuple[int, ...]) -> Weights:
    *experts, n, k = shape
    return info.tag, experts[0] if experts else 1, n, k


def check_product(w: Any, name: str, ndims: tuple[int, ...]) -> Weight:
    """The weights of a product, with so many dimensions."""
    check_weight(w, name)
    if w.ndim not in ndims:
        axes = " or ".join("[N, K]" if ndim == 2 else "[E, N, K]" for ndim in ndims)
        raise ValueError(f"{name}: expected {axes}, got shape {w.shape}")
    if not _driver.ready("a product", w.device).has_product(w._info.tag):
        known = "formats of blocks, planes, f32, f16 and bf16"
        raise ValueError(f"{name}: there are no products with {w.format} on GPUs, only with {known}")
    weight: Weight = w
    return weight


def check_weight(w: Any, name: str) -> Weight:
    if not isinstance(w, Weight):
        hint = "; cbquant.cuda.load copies it to the GPU" if isinstance(w, (QuantTensor, np.ndarray)) else ""
        raise TypeError(f"{name}: expected a cbquant.cuda.Weight, got {type(w).__name__}{hint}")
    return w


def place_of(w: Weight) -> tuple[Memory, int]:
    """Where its blocks are, or its fragments."""
    return w._memory, 0 if w.layout == "fragments" else _BEFORE
