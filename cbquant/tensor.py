"""`QuantTensor`: the blocks of a quantized tensor with their format and shape, decoded only on request."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cbquant import _api, _arguments, _formats
from cbquant._buffer import PLAIN_DTYPES, as_bytes
from cbquant._indexing import axis_key, expand_ellipsis, row_numbers
from cbquant._products import matmul
from cbquant._unknown import is_unknown, is_unscaled_fp8, unknown_kind
from cbquant._weights import BlockWeights, Weights

if TYPE_CHECKING:
    from cbquant.planes._tensor import PlanesTensor


def plain_view(raw: NDArray[Any], fmt: str, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The bytes of a plain format as an ndarray of its own dtype, not copied; None where NumPy has no such dtype."""
    name = PLAIN_DTYPES.get(fmt, "bfloat16")
    if name == "bfloat16":  # NumPy has none of its own
        return None
    array: NDArray[Any] = raw.view(np.dtype(name).newbyteorder("<")).reshape(shape)
    return array


class QuantTensor:
    """A tensor in one of the formats of `cbquant.formats`: a view of its blocks, not a copy. (`from_planes` makes one
    of codes and scales in arrays of their own.)

    Nothing is decoded before `dequant`, `rows` or ``np.asarray`` ask for it. ``t[i]``, ``t[a:b]``, ``t[i,
    j]`` are views too: ints and slices choose from all axes but the last, whose elements lie inside blocks.
    Two tensors are equal only where they are the same object.

    Parameters
    ----------
    buf : buffer or array
        Exactly the blocks of `shape`, row after row: bytes, memoryview, uint8 array (read-only,
        memory-mapped, any alignment). Contiguous ones are not copied.
    fmt : str
        Name of the format.
    shape : int or sequence of int
        Shape in elements, in NumPy's order; the last dimension is a multiple of the format's block.

    Raises
    ------
    ValueError
        Unknown format, a negative dimension, rows that are not whole blocks, another number of bytes.
    TypeError
        A wrong type of buffer or shape.

    Examples
    --------
    Six blocks of q8_0, each a float16 scale and 32 signed bytes.

    >>> import cbquant
    >>> block = bytes.fromhex("0038") + bytes(range(32))
    >>> t = cbquant.QuantTensor(block * 6, "q8_0", (3, 64))
    >>> t
    QuantTensor(q8_0, shape=(3, 64), 204 bytes)
    >>> t[1:].shape, t[1].shape
    ((2, 64), (64,))
    >>> t.rows([0, 2])[:, 33].tolist()
    [0.5, 0.5]
    """

    __slots__ = ("__weakref__", "_format", "_raw", "_shape")

    _format: str
    _raw: NDArray[Any]
    _shape: tuple[int, ...]

    def __init__(self, buf: Any, fmt: str, shape: int | Sequence[int]) -> None:
        info = _formats.get(fmt)
        data = as_bytes(buf, info.name)
        dims = _arguments.check_shape(info, shape, data.size)
        # A scalar, which only a plain format can hold, is a row of one element.
        row = (dims[-1] if dims else 1) // info.elements * info.bytes
        self._raw, self._format, self._shape = data.reshape((*dims[:-1], row)), info.name, dims

    @classmethod
    def from_planes(
        cls,
        fmt: str,
        codes: Any,
        scales: Any,
        *,
        shape: int | Sequence[int] | None = None,
        global_scale: Any = None,
        global_scale_is: str = "multiplier",
        tile: Sequence[int | None] | None = None,
        block: int = 64,
        nested: Sequence[Any] | None = None,
        packed: bool = False,
    ) -> PlanesTensor:
        """A tensor over codes and scales that lie in arrays of their own, as safetensors files have them.

        It is a `QuantTensor` in all but `raw`: it has `codes` and `scales` instead. Contiguous arrays are not copied.

        Parameters
        ----------
        fmt : str
            Name of a format of `cbquant.planes.formats`.
        codes, scales, shape, global_scale, global_scale_is, tile, block, nested, packed
            As for `cbquant.planes.dequant`. A nested absmax is made into float32, once.

        Returns
        -------
        QuantTensor

        Raises
        ------
        ValueError, TypeError
            As `cbquant.planes.dequant`.

        Examples
        --------
        A matrix in FP8 under a scale for each tile of 128 rows and 128 columns.

        >>> import cbquant, numpy as np
        >>> codes = np.full((200, 256), 0x38, np.uint8)                      # 1.0
        >>> scales = np.array([[1, 2], [3, 4]], np.float32)
        >>> t = cbquant.QuantTensor.from_planes("fp8_e4m3", codes, scales)
        >>> t
        QuantTensor(fp8_e4m3, shape=(200, 256), 51,216 bytes)
        >>> t[199].dequant()[[0, 128]]
        array([3., 4.], dtype=float32)
        >>> np.ones(256, np.float32) @ t[::100].T
        array([384., 384.], dtype=float32)
        """
        from cbquant.planes import _checks
        from cbquant.planes._tensor import PlanesTensor

        options = (shape, global_scale, global_scale_is, tile, block, nested, packed)
        return PlanesTensor(_checks.layout(fmt, codes, scales, *options))

    @classmethod
    def _wrap(cls, raw: NDArray[Any], fmt: str, shape: tuple[int, ...]) -> QuantTensor:
        """A tensor of parts known to fit: a view of another, or an unknown type with bytes of any length."""
        self = object.__new__(cls)
        self._raw, self._format, self._shape = raw, fmt, shape
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return QuantTensor._wrap, (self._raw, self._format, self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements, in NumPy's order."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def format(self) -> str:
        """The format's name; ``"unknown_<tag>"`` for a type of a file that cbquant does not know."""
        return self._format

    @property
    def nbytes(self) -> int:
        """The number of bytes that the blocks take."""
        return self._raw.nbytes

    @property
    def raw(self) -> NDArray[Any]:
        """The blocks as a uint8 array [..., row bytes], not copied; [bytes] where the format is unknown."""
        return self._raw

    @property
    def T(self) -> Transposed:
        """The transpose, for products: ``x @ t.T`` is `cbquant.matmul`."""
        return Transposed(self)

    def _weights(self) -> Weights:
        """What products multiply with; a ValueError where the format is unknown."""
        self._require_known("multiplied")
        return BlockWeights(np.ascontiguousarray(self._raw), _formats.get(self._format), self._shape)

    def __matmul__(self, y: Any) -> NDArray[Any]:
        """``t[N, K] @ y[K]`` -> ``[N]`` and ``t[N, K] @ y[K, M]`` -> ``[N, M]``: `cbquant.matmul`, transposed."""
        columns = _arguments.as_numbers(y, "y")
        if columns.ndim not in (1, 2) or self.ndim != 2 or columns.shape[0] != self.shape[1]:
            raise ValueError(
                f"t @ y: expected t [N, K] and y [K] or [K, M], got shapes {self.shape} and {columns.shape}"
            )
        product: NDArray[Any] = matmul(columns.T, self).T
        return product

    def _require_known(self, participle: str) -> None:
        if is_unscaled_fp8(self._format):
            kind, ask = unknown_kind(self._format), "cbquant.open(path, unscaled_fp8=True) takes its codes for numbers"
            raise ValueError(f"tensor is FP8 without scales ({kind}): it cannot be {participle}; {ask}")
        if is_unknown(self._format):
            kind = unknown_kind(self._format).replace("GGUF type", "GGUF type tag")
            raise ValueError(f"tensor has {kind}, which cbquant does not know: it cannot be {participle}")

    def dequant(
        self, dtype: DTypeLike = "float32", out: NDArray[Any] | None = None, threads: int | None = None
    ) -> NDArray[Any]:
        """The decoded values.

        Parameters
        ----------
        dtype, out, threads
            As for `cbquant.dequant`.

        Returns
        -------
        ndarray
            `out`, or a new array of the tensor's shape.

        Raises
        ------
        ValueError
            The tensor is of a type that cbquant does not know; an `out` that does not fit.
        TypeError
            A wrong type of dtype, out or threads.
        """
        self._require_known("decoded")
        return _api.dequant(self._raw, self._format, shape=self._shape, dtype=dtype, out=out, threads=threads)

    def rows(self, index: int | slice | ArrayLike, dtype: DTypeLike = "float32") -> NDArray[Any]:
        """Decode only the chosen entries of the first axis: an embedding look-up.

        Parameters
        ----------
        index : int, slice or array of int
            Integers of any shape; negative ones count from the end.
        dtype : "float32", "float16" or "bfloat16"
            Type of the result.

        Returns
        -------
        ndarray
            What ``t.dequant(dtype)[index]`` gives.

        Raises
        ------
        IndexError
            A number out of range, numbers that are not integers, a tensor of fewer than two dimensions.
        ValueError
            The tensor is of a type that cbquant does not know.
        """
        self._require_known("decoded")
        if self.ndim < 2:
            raise IndexError(f"a {self.ndim}-D QuantTensor has no rows to choose from: use dequant()[index]")
        return self._choose((index if isinstance(index, slice) else row_numbers(index, len(self)),)).dequant(dtype)

    def _choose(self, keys: tuple[int | slice | NDArray[Any], ...]) -> QuantTensor:
        """What these keys, in range, choose from all axes but the last: ints and slices, or an array from the first."""
        raw = self._raw[keys]
        return self._wrap(raw, self._format, raw.shape[:-1] + self._shape[-1:])

    def __getitem__(self, key: Any) -> QuantTensor:
        """A view: ints and slices choose from all axes but the last, whose elements lie inside blocks."""
        self._require_known("indexed")
        keys = expand_ellipsis(key if isinstance(key, tuple) else (key,), self.ndim)
        if len(keys) > self.ndim:
            raise IndexError(f"{len(keys)} indices for a {self.ndim}-D QuantTensor")
        if len(keys) == self.ndim > 0:
            self._check_last_axis(keys[-1])
            keys = keys[:-1]
        return self._choose(tuple(axis_key(k, axis, self._shape[axis]) for axis, k in enumerate(keys)))

    def _check_last_axis(self, key: Any) -> None:
        length = self._shape[-1]
        if isinstance(key, slice) and key.indices(length) == (0, length, 1):
            return
        raise IndexError(
            f"axis {self.ndim - 1} is the last of shape {self._shape}: its elements {self._bound()} "
            "and cannot be indexed; decode first, with dequant() or rows()"
        )

    def _bound(self) -> str:
        """Why the elements of a row cannot be chosen, in words."""
        return f"lie inside {self._format} blocks"

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a QuantTensor without dimensions has no length")
        return self._shape[0]

    def __bool__(self) -> bool:
        """Always true, whatever the values and the shape: ``if tensor`` asks whether there is one."""
        return True

    def __iter__(self) -> Iterator[QuantTensor]:
        if self.ndim < 2:
            raise TypeError(f"a {self.ndim}-D QuantTensor cannot be iterated over: use dequant()")
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """The decoded values, for ``np.asarray``. Decoding makes a new array: ``copy=False`` is an error.

        Without a dtype they are float32, whatever the format. With one, numbers of a plain format are cast from
        their own type (i64 to int64 loses nothing), those of bf16 and block formats from float32 or float16.
        """
        if copy is False:
            raise ValueError("copy=False: decoding a QuantTensor always makes a new array")
        if dtype is None:
            return self.dequant()
        own = self._plain()
        if own is not None:
            with np.errstate(over="ignore"):  # to infinity, in silence as the decoder does
                return own.astype(dtype)
        # float16 comes straight from the decoder; the others are its float32, cast.
        direct = np.dtype(dtype) == np.float16
        return self.dequant("float16" if direct else "float32").astype(dtype, copy=False)

    def _plain(self) -> NDArray[Any] | None:
        """The numbers as an ndarray of their own dtype, not copied, where NumPy has one."""
        return plain_view(self._raw, self._format, self._shape)

    def __repr__(self) -> str:
        return f"QuantTensor({self._format}, shape={self._shape}, {self.nbytes:,} bytes)"

    def _repr_html_(self) -> str:
        cells = {"format": self._format, "shape": str(self._shape), "bytes": f"{self.nbytes:,}"}
        if not is_unknown(self._format):
            cells["bits per weight"] = f"{self._bits_per_weight():g}"
        rows = "".join(f"<tr><th>{k}</th><td>{html.escape(v)}</td></tr>" for k, v in cells.items())
        return f"<table><caption>QuantTensor</caption>{rows}</table>"

    def _bits_per_weight(self) -> float:
        return _formats.get(self._format).bits_per_weight


class Transposed:
    """The transpose of a `QuantTensor` ``[N, K]``: it multiplies, ``x[..., K] @ t.T`` -> ``[..., N]``, and is of no
    other use. ``T`` is the tensor again.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> t = cbquant.QuantTensor(bytes.fromhex("0038") + bytes(range(32)), "q8_0", (1, 32))
    >>> np.ones(32, np.float32) @ t.T
    array([248.], dtype=float32)
    """

    __slots__ = ("T",)

    def __init__(self, tensor: QuantTensor) -> None:
        #: the tensor itself
        self.T = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements: those of the tensor, the last one first."""
        return self.T.shape[::-1]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.T.ndim

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Refused: decode the tensor, and transpose that."""
        raise TypeError("t.T of a QuantTensor only multiplies, x @ t.T; decoded it is t.dequant().T")

    def __rmatmul__(self, x: Any) -> NDArray[Any]:
        return matmul(x, self.T)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """``np.matmul(x, t.T, out=...)``, which ``ndarray @ t.T`` calls too."""
        if ufunc is not np.matmul or method != "__call__" or inputs[1] is not self or kwargs.keys() - {"out"}:
            return NotImplemented
        (out,) = kwargs.get("out", (None,))
        return matmul(inputs[0], self.T, out=out)

    def __repr__(self) -> str:
        return f"{self.T!r}.T"
