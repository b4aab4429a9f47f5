"""Multi-head latent attention of one token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbquant import _core
from cbquant._arguments import check_threads
from cbquant.deepseek._attention import scale_of
from cbquant.deepseek._inputs import Sizes, bits, floats, output, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mla_decode(
    q_nope: Any,
    q_rope: Any,
    w_uk: Any,
    ckv: Any,
    k_rope: Any,
    scale: float | None = None,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Attention of one token over a compressed cache, which all heads share.

    The keys' up-projection is absorbed by the query: ``s[h, i] = scale * ((q_nope[h] @ w_uk[h]) . ckv[i] + q_rope[h] .
    k_rope[i])``, and the result is the softmax of these logits over i times ckv, before the values' up-projection.

    Parameters
    ----------
    q_nope : array
        ``[H, d]``: the part of the queries without position; float32, float16 or bfloat16.
    q_rope : array
        ``[H, 64]``, or any other width: the rotated part.
    w_uk : array
        ``[H, d, 512]``, or any other width of the compressed rows: the keys' up-projection.
    ckv : array
        ``[n, 512]``: the compressed rows, keys and values at once. They are read once.
    k_rope : array
        ``[n, 64]``: the rotated part of the keys.
    scale : float, optional
        1 / sqrt(d + 64) by default, where 64 is the width of the rotated part.
    out : ndarray, optional
        Where to write: ``[H, 512]``, its last axis contiguous, apart from the inputs; float32, float16, bfloat16, or
        uint16 for the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it.

    Returns
    -------
    ndarray
        `out`, or a new array ``[H, 512]`` of q_nope's dtype.

    Raises
    ------
    ValueError
        Shapes that do not fit, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Notes
    -----
    Item 14 of DeepSeek-V4's operators. Products, softmax and sums are float32.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> q, rope, w_uk = np.ones((1, 2), np.float32), np.zeros((1, 64), np.float32), np.zeros((1, 2, 4), np.float32)
    >>> ckv, k_rope = np.float32([[1, 0, 0, 2], [3, 0, 0, 4]]), np.zeros((2, 64), np.float32)
    >>> cbquant.deepseek.mla_decode(q, rope, w_uk, ckv, k_rope)
    array([[2., 0., 0., 3.]], dtype=float32)
    """
    sizes = Sizes()
    inputs = {
        "q_nope": floats(q_nope, "q_nope", "H d", sizes),
        "q_rope": floats(q_rope, "q_rope", "H rope", sizes),
        "w_uk": floats(w_uk, "w_uk", "H d R", sizes),
        "ckv": floats(ckv, "ckv", "n R", sizes),
        "k_rope": floats(k_rope, "k_rope", "n rope", sizes),
    }
    factor = scale_of(scale, sizes["d"] + sizes["rope"])
    result = output(out, sizes.shape("H R"), inputs["q_nope"].dtype.name, inputs)
    first, second, up, compressed, rotated = (bits(rows(array)) for array in inputs.values())
    _core.mla(first, second, up, compressed, rotated, bits(result), factor, check_threads(threads))
    return result
