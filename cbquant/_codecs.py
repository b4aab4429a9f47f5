"""What the codec modules (`cbquant.e2m1`, `cbquant.fp8` ..) share: checks here, the work in C."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbquant import _core
from cbquant._arguments import as_floats, check_bytes_out, check_out, check_threads, check_word, dtype_name, empty
from cbquant._buffer import as_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# For new memory: see _api.py.
_THROUGH_CACHE = 0


class Kind(NamedTuple):
    """A row of csrc/codecs/kinds.h."""

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    top: str
    largest: float

    @property
    def emax(self) -> int:
        """The exponent of the largest value."""
        return math.frexp(self.largest)[1] - 1

    def packs(self) -> tuple[int, int]:
        """Codes that fill whole bytes, and those bytes."""
        n = 8 // math.gcd(8, self.bits)
        return n, n * self.bits // 8


#: The types of ml_dtypes that hold a code in a byte.
ML_DTYPES = {
    "e2m1": "float4_e2m1fn",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e8m0": "float8_e8m0fnu",
    **{kind: f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")},
}
KINDS = {row[0]: Kind(*row) for row in _core.code_kinds()}
FP8_KINDS = tuple(name for name, k in KINDS.items() if k.bits == 8 and k.top not in ("fixed", "scale"))
ELEMENTS = tuple(name for name, k in KINDS.items() if k.top != "scale")


def decode(
    kind: str, codes: Any, dtype: Any, out: NDArray[Any] | None, threads: int | None, packed: bool = False
) -> NDArray[Any]:
    name = "packed" if packed else "codes"
    if not packed and isinstance(codes, np.ndarray) and codes.dtype.name == ML_DTYPES.get(kind):
        codes = codes.view(np.uint8)
    data = _as_codes(codes, name)
    shape = data.shape
    if packed:
        n, size = KINDS[kind].packs()
        shape = _resized(name, shape, size, n, f"bytes ({n} codes of {kind})")
    wanted = dtype_name(dtype, out)
    result = empty(shape, wanted) if out is None else check_out(out, shape, wanted)
    _check_apart(codes, out, name)
    stream = _THROUGH_CACHE if out is None else -1
    _core.decode_codes(data, kind, result, wanted, packed, check_threads(threads), None, stream)
    return result if out is None else out


def encode(
    kind: str,
    x: Any,
    out: NDArray[np.uint8] | None,
    threads: int | None,
    packed: bool = False,
    saturate: bool = True,
    name: str = "x",
    **rule: Any,
) -> NDArray[np.uint8]:
    array, source = as_floats(x, name)
    shape = array.shape
    if packed:
        n, size = KINDS[kind].packs()
        shape = _resized(name, shape, n, size, f"elements ({size} {'byte' if size == 1 else 'bytes'} of {kind} codes)")
    result = check_bytes_out(out, shape)
    _check_apart(x, out, name)
    _core.encode_codes(array, source, kind, result, packed, saturate, check_threads(threads), None, **rule)
    return result


def scale_rule(rule: str, element: str, emax: int | None, mbits: int | None, largest: float | None) -> dict[str, Any]:
    """What `rule` needs to know, of the element type or as given."""
    given = {"emax": emax, "mbits": mbits, "largest": largest}
    used = {"floor": ("emax",), "ceil": ("largest",), "even": ("emax", "mbits"), "ggml": ()}
    check_word("rule", rule, tuple(used))
    kind = KINDS[check_word("element", element, ELEMENTS)]
    if rule == "ggml" and element != "e2m1":
        raise ValueError(f"element: rule 'ggml' is that of mxfp4, whose elements are e2m1, got {element!r}")
    for name, value in given.items():
        if value is not None and name not in used[rule]:
            words = f"it uses {' and '.join(used[rule])}" if used[rule] else "it is fixed"
            raise ValueError(f"{name}: rule {rule!r} does not use it ({words})")
    return {
        "rule": rule,
        "emax": kind.emax if emax is None else _whole("emax", emax),
        "mbits": kind.mantissa_bits if mbits is None else _whole("mbits", mbits),
        "largest": kind.largest if largest is None else _number("largest", largest),
    }


def _whole(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected a whole number, got {type(value).__name__}")
    number = operator.index(value)
    if abs(number) > 2**31 - 1:
        raise ValueError(f"{name}: expected a small whole number, got {number}")
    return number


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}") from None


def _as_codes(codes: Any, name: str) -> NDArray[np.uint8]:
    data = as_bytes(codes, name=name)
    return data.reshape(()) if isinstance(codes, (np.ndarray, np.generic)) and codes.ndim == 0 else data


def _resized(name: str, shape: tuple[int, ...], unit: int, becomes: int, what: str) -> tuple[int, ...]:
    """`shape` with `becomes` for each `unit` of its last axis."""
    if not shape:
        raise ValueError(f"{name}: expected at least one dimension, got ()")
    if shape[-1] % unit:
        raise ValueError(f"{name}: last dimension {shape[-1]} is not a multiple of {unit} {what}")
    return (*shape[:-1], shape[-1] // unit * becomes)


def _check_apart(source: Any, out: NDArray[Any] | None, name: str) -> None:
    if out is not None and isinstance(source, np.ndarray) and np.may_share_memory(source, out):
        raise ValueError(f"out: expected memory of its own, it overlaps {name}")
