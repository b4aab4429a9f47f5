"""Planes: codes in one array, scales in another, as safetensors files have FP8, MXFP4, NVFP4 and bitsandbytes' weights.

============  ============================================  =====================================================
format        codes                                         scales
============  ============================================  =====================================================
mxfp4         E2M1 pairs ``[..., K/32, 16]``                E8M0 ``[..., K/32]``
nvfp4         E2M1 pairs ``[..., K/2]``                     E4M3 ``[..., K/16]``, and a number for the tensor
fp8_e4m3      E4M3 ``[..., N, K]``                          numbers or E8M0, for tiles, rows or the tensor
fp8_e5m2      E5M2 ``[..., N, K]``                          the same
nf4, fp4      codes of bitsandbytes' tables, two to a byte  numbers, for each `block` elements of the whole tensor
mxfp8_e4m3    E4M3 ``[..., K]``                             E8M0 ``[..., K/32]``
mxfp8_e5m2    E5M2 ``[..., K]``                             the same
mxfp6_e3m2    E3M2 ``[..., K]``, packed ``[..., 3 K/4]``    the same
mxfp6_e2m3    E2M3, as mxfp6_e3m2                           the same
mxint8        bytes / 64 ``[..., K]``                       the same
============  ============================================  =====================================================

Codes of mxfp4 may be ``[..., K/2]`` too. The names of mxfp4 and nvfp4 end in ``_planes`` outside of this module:
GGUF has blocks of these names, with other nibbles in a byte. `cbquant.QuantTensor.from_planes` makes a tensor that
multiplies; `to_blocks` and `from_blocks` move between both.

>>> import cbquant, numpy as np
>>> codes = np.array([[0x21] + [0] * 15], np.uint8)          # of the first byte: 1 in the low nibble, 2 in the high one
>>> cbquant.planes.dequant("mxfp4", codes, np.array([[128]], np.uint8))[0, :3]
array([1., 2., 0.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cbquant.planes import _checks
from cbquant.planes._blocks import from_blocks, to_blocks
from cbquant.planes._formats import PlanesFormat, formats
from cbquant.planes._quantize import Planes, quantize

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Planes", "PlanesFormat", "dequant", "formats", "from_blocks", "quantize", "to_blocks"]


def dequant(
    fmt: str,
    codes: Any,
    scales: Any,
    *,
    shape: int | Sequence[int] | None = None,
    global_scale: Any = None,
    global_scale_is: str = "multiplier",
    tile: Sequence[int | None] | None = None,
    block: int = _checks.BLOCK,
    nested: Sequence[Any] | None = None,
    packed: bool = False,
    dtype: Any = "float32",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Decode planes.

    Each value is code times scale in float32, rounded once (of E8M0 and E4M3 scales the product is exact, but for
    numbers beyond float32 and below its smallest), and once more where a global scale multiplies or divides.
    float16 and bfloat16 are that float32 rounded once more. NaN and infinity in scales follow IEEE arithmetic.

    Layouts: OCP MX 1.0 (mx*), gpt-oss (mxfp4), ModelOpt and compressed-tensors (nvfp4), DeepSeek-V3 (fp8 in tiles),
    bitsandbytes (nf4, fp4). `cbquant.reference.planes` is the same in NumPy.

    Parameters
    ----------
    fmt : str
        Name of a format: see `formats`. A trailing ``_planes`` makes no difference.
    codes : array of uint8
        As the table above has it, any strides. Of two codes in a byte the first is in the low nibble, of nf4 and
        fp4 in the high one. Also the type of ml_dtypes that a code of one byte is (``float8_e4m3fn`` ..), and int8
        for mxint8. nf4 and fp4: any shape of ``ceil(elements / 2)`` bytes.
    scales : array
        float32, float16, bfloat16 (or uint16: its bits) of fp8, nf4 and fp4; uint8 or ml_dtypes' type where they
        are E8M0, which fp8 may have too (127 is 1.0), or E4M3.
    shape : int or sequence of int, optional
        Shape of the tensor: of nf4 and fp4 where it is not ``codes.shape[:-1] + (2 * codes.shape[-1],)``.
    global_scale : float, optional
        nvfp4's number for the tensor; 1-element arrays too.
    global_scale_is : "multiplier" or "divisor"
        Whether files keep what to multiply with (ModelOpt) or its reciprocal (compressed-tensors). Nothing guesses.
    tile : (int or None, int or None), optional
        fp8: rows and columns under one scale, where None is all of them; the last tiles may be cut. `scales` are
        ``[..., ceil(N / rows), ceil(K / columns)]``. Without it, scales of the number of dimensions of `codes`
        belong to tiles of 128 x 128, one dimension less is a scale for each row, and a single one (a float, ``()``
        or ``(1,)``) is for the tensor.
    block : int
        nf4, fp4: elements under one scale, an even number, in the order of the whole tensor.
    nested : (absmax2, table2, offset) or (absmax2, table2, offset, block2), optional
        nf4, fp4: `scales` are uint8 codes, and scale i is ``table2[scales[i]] * absmax2[i // block2]``, rounded to
        float32, ``+ offset``, rounded. `block2` is 256.
    packed : bool
        mxfp6: four codes in three bytes, the first in the lowest bits.
    dtype, out, threads
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        `out`, or a new array.

    Raises
    ------
    ValueError
        An unknown format, shapes that do not fit, a K that is no multiple of 32 (mx*) or 16 (nvfp4), an argument
        that the format does not have, an `out` that does not fit or overlaps. Nothing is written.
    TypeError
        A wrong type of array, dtype or number.
    ImportError
        bfloat16 without ml_dtypes.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> codes = np.array([[0x38, 0x40], [0xB8, 0x7E]], np.uint8)                        # 1, 2, -1, 448
    >>> cbquant.planes.dequant("fp8_e4m3", codes, 0.5)                                  # a scale for the tensor
    array([[  0.5,   1. ],
           [ -0.5, 224. ]], dtype=float32)
    >>> cbquant.planes.dequant("fp8_e4m3", codes, np.array([0.5, 2], np.float32))       # for each row
    array([[ 5.00e-01,  1.00e+00],
           [-2.00e+00,  8.96e+02]], dtype=float32)
    >>> cbquant.planes.dequant("fp8_e4m3", codes, np.array([[127, 128]], np.uint8), tile=(None, 1), dtype="float16")
    array([[  1.,   4.],
           [ -1., 896.]], dtype=float16)
    >>> cbquant.planes.dequant("nf4", np.array([0x0F], np.uint8), np.array([3], np.float32))
    array([-3.,  3.], dtype=float32)
    """
    options = (shape, global_scale, global_scale_is, tile, block, nested, packed)
    return _checks.layout(fmt, codes, scales, *options).dequant(dtype, out, threads)
