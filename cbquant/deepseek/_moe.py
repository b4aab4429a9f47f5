"""moe_ffn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_out, check_threads, empty
from cbquant._formats import get
from cbquant._products import _bits, _check_precision, _factors, _groups, _ids, _store
from cbquant._weights import BlockWeights, Weights, as_weights
from cbquant.deepseek._inputs import Sizes, check_apart, dtype_of, floats, number
from cbquant.tensor import QuantTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


_PLAIN = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def moe_ffn(
    x: Any,
    gate: Any,
    up: Any,
    down: Any,
    ids: Any,
    weights: Any,
    *,
    fmt: str | None = None,
    precision: str = "f32",
    limit: float | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """The feed-forward layer of a mixture of experts, whose weights stay compressed.

    Each token's result is the sum over its experts of weight * down(silu(gate(x)) * up(x)), with silu(a) = a / (1 +
    exp(-a)). Tokens are grouped by expert, as in `cbquant.moe_matmul`: weights are read from their blocks, once for
    each expert that a token chose and not at all for the others. A token's experts are added in the order of their
    numbers, in float32; between the products everything is float32.

    Parameters
    ----------
    x : array
        ``[T, K]``: float32, float16 or bfloat16, any strides.
    gate, up, down : QuantTensor, buffer or array
        The experts: ``[E, F, K]``, ``[E, F, K]`` and ``[E, N, F]``. `QuantTensor`, each of its own format (what
        `cbquant.open` gives), arrays of float32, float16 or bfloat16, or uint8 blocks ``[.., row bytes]`` with `fmt`.
    ids : array of int
        ``[T, k]``: the experts of each token, 0 to E - 1; -1 is none. What `route` gives.
    weights : array
        ``[T, k]``.
    fmt : str, optional
        The format of blocks that are given as bytes.
    precision : "f32", "bf16", "q8" or "q16"
        Of the products, as for `cbquant.matmul`.
    limit : float, optional
        Above 0: gate(x) becomes at most that, and up(x) is clipped to -limit .. limit, before the silu. DeepSeek-V4's
        ``swiglu_limit``, 10. By default nothing is clipped.
    out : ndarray, optional
        Where to write: ``[T, N]``, C-contiguous, apart from the inputs; float32, float16, bfloat16, or uint16 for the
        bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it.

    Returns
    -------
    ndarray
        ``[T, N]``: `out`, or a new array of x's dtype. As for `cbquant.moe_matmul`, a token's last bits may depend on
        how many others chose the same expert.

    Raises
    ------
    ValueError
        Shapes that do not fit, an expert that is not there, an unknown precision, a limit that is not above 0, an `out`
        that does not fit or overlaps; in "q8" and "q16" a NaN or an infinity.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    Two experts of one block of q8_0 in each row; the second one is three times the first.

    >>> import cbquant, numpy as np
    >>> def experts(rows):
    ...     rows = [bytes.fromhex("0030") + bytes([value] * 32) for value in (1, 3) for _ in range(rows)]
    ...     return cbquant.QuantTensor(b"".join(rows), "q8_0", (2, len(rows) // 2, 32))
    >>> x = np.full((2, 32), 0.25, np.float32)
    >>> gate, up, down = experts(32), experts(32), experts(1)
    >>> cbquant.deepseek.moe_ffn(x, gate, up, down, [[0, -1], [1, 0]], [[1, 0], [0.5, 0.5]]).round(2)
    array([[ 2.92],
           [52.9 ]], dtype=float32)
    """
    sizes = Sizes()
    tokens = floats(x, "x", "T K", sizes)
    experts = [_experts(gate, "gate", ("E", "F", "K"), fmt, sizes), _experts(up, "up", ("E", "F", "K"), fmt, sizes)]
    experts.append(_experts(down, "down", ("E", "N", "F"), fmt, sizes))
    chosen = _ids(ids, sizes["T"], sizes["E"])
    factors = _factors(weights, chosen.shape)
    for experts_of in experts:
        _check_precision(precision, experts_of)
    bound = limit_of(limit)
    shape = sizes.shape("T N")
    if out is not None:
        check_out(out, shape)
        names = ("gate", "up", "down")
        memory = {name: a for name, w in zip(names, experts, strict=True) for a in w.memory}
        check_apart(out, {"x": tokens, **memory, "ids": np.asarray(ids), "weights": np.asarray(weights)})
    count = check_threads(threads)
    total = np.zeros(shape, np.float32)
    for expert, members, slots in _groups(chosen):
        parts = _ffn(tokens[members], [w.matrix(expert) for w in experts], precision, bound, count)
        with np.errstate(over="ignore", invalid="ignore"):  # as the products themselves
            parts *= factors[members, slots, None]
            if (members[1:] == members[:-1]).any():  # a token that chose this expert twice
                np.add.at(total, members, parts)
            else:
                total[members] += parts
    return _store(empty(shape, dtype_of(tokens)) if out is None else out, total)


def limit_of(limit: float | None) -> float | None:
    """Checked; None is none."""
    if limit is None:
        return None
    bound = number(limit, "limit")
    if bound <= 0:
        raise ValueError(f"limit: expected a number above 0, got {bound}")
    return bound


def _ffn(
    x: NDArray[Any], expert: list[Weights], precision: str, limit: float | None, threads: int
) -> NDArray[np.float32]:
    """One expert, its gate, up and down, for the tokens that chose it."""
    gate, up, down = expert

    def product(a: NDArray[Any], w: Weights) -> NDArray[np.float32]:
        result = np.empty((len(a), w.shape[0]), np.float32)
        w.multiply(_bits(np.ascontiguousarray(a)), dtype_of(a), result, "float32", len(a), precision, threads)
        return result

    inner, factors = product(x, gate), product(x, up)
    if limit is not None:
        np.minimum(inner, np.float32(limit), out=inner)
        np.clip(factors, np.float32(-limit), np.float32(limit), out=factors)
    _core.swiglu(inner, factors, inner, threads)
    return product(inner, down)


def _experts(w: Any, name: str, axes: tuple[str, ...], fmt: str | None, sizes: Sizes) -> Weights:
    """The experts as weights of three dimensions, which say the sizes or have to have them."""
    weights: Weights
    if isinstance(w, np.ndarray) and w.dtype.name in _PLAIN:
        array = np.ascontiguousarray(floats(w, name))
        weights = BlockWeights(array.view(np.uint8), get(_PLAIN[array.dtype.name]), array.shape)
    else:
        weights = as_weights(w, None if isinstance(w, QuantTensor) else fmt, None, name, axes)
    sizes.check(name, " ".join(axes), weights.shape)
    return weights
