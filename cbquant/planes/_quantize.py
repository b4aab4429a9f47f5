"""Encoding to planes: arguments are checked and shaped here, the work is done in C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbquant import _core
from cbquant._arguments import as_floats, check_threads, check_word, empty
from cbquant.planes import _formats
from cbquant.planes._checks import BLOCK, GLOBAL_SCALES, SCALE_TYPES, TILE, check_options, check_tile, packing, tiles
from cbquant.planes._formats import PlanesFormat
from cbquant.planes._layout import NO_GLOBAL_SCALE, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCALE_DTYPES = {"tile": ("float32", "float16", "bfloat16", "e8m0"), "absmax": ("float32", "float16", "bfloat16")}


class Planes(NamedTuple):
    """What `quantize` and `from_blocks` return; ``dequant(fmt, codes, scales, global_scale=global_scale)`` decodes it.

    Attributes
    ----------
    codes : ndarray of uint8
        The codes.
    scales : ndarray
        The scales.
    global_scale : float or None
        The number for the tensor, of nvfp4 alone; a float32.
    """

    codes: NDArray[np.uint8]
    scales: NDArray[Any]
    global_scale: float | None


def quantize(
    x: Any,
    fmt: str,
    *,
    tile: Sequence[int | None] | None = None,
    block: int = BLOCK,
    packed: bool = False,
    scale_dtype: Any = "float32",
    global_scale_is: str = "multiplier",
    threads: int | None = None,
) -> Planes:
    """Encode numbers to planes.

    With amax the largest magnitude under a scale, the scale is

    - mx*: the power of two of OCP MX 1.0, ``2^(exponent of amax - exponent of the largest element)``:
      `cbquant.e8m0.encode` with rule "floor". The largest elements may saturate;
    - fp8, nf4, fp4: amax / the largest code's value (448, 57344, 1), rounded to `scale_dtype`; in E8M0 by rule "floor";
    - nvfp4: amax / 6 / the tensor's scale, rounded to E4M3, where the tensor's scale is amax / (448 * 6) of the
      whole tensor, rounded to float32 (at least 2^-126).

    Then each code is the one nearest to x / scale. Where all is zero, so are scales (of nvfp4's tensor: 1) and numbers.

    Parameters
    ----------
    x : array
        ``[..., K]`` in float32, float64, float16 or bfloat16; any strides. K is a multiple of 32 (mx*) or 16 (nvfp4).
    fmt : str
        Name of a format: see `formats`.
    tile : (int or None, int or None), optional
        fp8: as for `dequant`; by default 128 x 128.
    block : int
        nf4, fp4: elements under one scale.
    packed : bool
        mxfp6: four codes in three bytes.
    scale_dtype : "float32", "float16", "bfloat16" or "e8m0"
        fp8, nf4 and fp4: the type of the scales, of which fp8 alone has "e8m0" (uint8 bytes).
    global_scale_is : "multiplier" or "divisor"
        nvfp4: whether to return the tensor's scale or what to divide by, its reciprocal rounded to float32.
    threads : int, optional
        As for `cbquant.dequant`. The bytes do not depend on it.

    Returns
    -------
    Planes
        ``(codes, scales, global_scale)`` as `dequant` takes them: with the same `tile`, `block`, `packed` and
        `global_scale_is`, and of nf4 and fp4 with x's shape where K is odd. `global_scale` is None but for nvfp4.

    Raises
    ------
    ValueError
        An unknown format, a K that does not fit, NaN or infinity in `x` (with its row and column), a scale beyond what
        `scale_dtype` can hold, an argument that the format does not have.
    TypeError
        A wrong type of array or number.
    ImportError
        bfloat16 scales without ml_dtypes.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    >>> codes, scales, _ = cbquant.planes.quantize(x, "mxfp8_e4m3")
    >>> codes.shape, scales.tolist()
    ((2, 32), [[119], [119]])
    >>> bool(np.abs(cbquant.planes.dequant("mxfp8_e4m3", codes, scales) - x).max() < 0.04)
    True
    """
    f = _formats.get(fmt)
    check_options(f, tile, block, packed)
    check_word("global_scale_is", global_scale_is, tuple(GLOBAL_SCALES))
    kind = _scale_dtype(f, scale_dtype)
    count = check_threads(threads)
    array, source = as_floats(x, "x")
    if array.ndim == 0:
        raise ValueError("x: expected at least one dimension, got ()")
    empty_planes = _empty(f, array.shape, tile, int(block), packed, kind, GLOBAL_SCALES[global_scale_is])
    scale = _core.quantize_planes(array, source, empty_planes.planes(), count)
    codes = empty_planes.codes
    if f.name == "mxfp4_planes":
        codes = codes.reshape(*empty_planes.scales.shape, f.group // 2)
    return Planes(codes, empty_planes.scales, scale if empty_planes.global_op else None)


def _scale_dtype(f: PlanesFormat, scale_dtype: Any) -> str:
    """float32, float16, bfloat16 or uint8: the dtype of the scales."""
    name = scale_dtype
    if not isinstance(name, str):
        try:
            name = np.dtype(scale_dtype).name.replace("float8_e8m0fnu", "e8m0")
        except TypeError:
            raise TypeError(f"scale_dtype: expected the name of a type, got {scale_dtype!r}") from None
    known = _SCALE_DTYPES.get(f.scales)
    if known is not None:
        return "uint8" if check_word("scale_dtype", name, known) == "e8m0" else name
    if name not in ("float32", f.scales):  # float32 is the default
        raise ValueError(f"scale_dtype: the scales of {f.name} are bytes of {f.scales}, got {name!r}")
    return "uint8"


def _empty(
    f: PlanesFormat, shape: tuple[int, ...], tile: Any, block: int, packed: bool, dtype: str, global_op: int
) -> Layout:
    """New arrays for the planes of a tensor of this shape."""
    k = shape[-1]
    codes_shape: tuple[int, ...]
    scales_shape: tuple[int, ...]
    if f.is_flat:
        n = math.prod(shape)
        codes_shape = (-(-n // 2),) if k % 2 else (*shape[:-1], k // 2)
        place, scales_shape = (0, block), (-(-n // block),)
    elif f.scales == "tile":
        place = check_tile(TILE if tile is None else tile, shape)
        codes_shape, scales_shape = shape, tiles(shape, place)
    else:
        if k % f.group:
            raise ValueError(f"x: k={k} is not a multiple of {f.group} elements under one scale ({f.name})")
        n, size = packing(f, packed)
        place = (1, f.group)
        codes_shape, scales_shape = (*shape[:-1], k // n * size), (*shape[:-1], k // f.group)
    scales = np.empty(scales_shape, np.uint8) if dtype == "uint8" else empty(scales_shape, dtype)
    types = SCALE_TYPES[f.scales]
    operation = (0.0, global_op) if f.scales == "e4m3fn" else (1.0, NO_GLOBAL_SCALE)
    codes = np.empty(codes_shape, np.uint8)
    return Layout(f, shape, codes, scales, types[dtype], place, packed or f.always_packed, *operation)
