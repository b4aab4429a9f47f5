"""bitsandbytes in 4 bits: codes in ``X``, the rest in tensors named after it.

``X.quant_state.bitsandbytes__nf4`` (or ``__fp4``) is JSON in uint8: quant_type, blocksize, shape, dtype, and of nested
absmax nested_blocksize, nested_dtype and nested_offset. ``X`` has ceil(n / 2) bytes, of any dtype, the first code of a
byte in the high nibble; ``X.absmax`` is float32, or uint8 beside ``X.nested_absmax`` and ``X.nested_quant_map``;
``X.quant_map`` has the 16 numbers (QuantState and dequantize_4bit in bitsandbytes/functional.py of
https://github.com/bitsandbytes-foundation/bitsandbytes). The codes follow one another over the whole tensor, rows or
not. The JSON is read when the file is opened: nothing else tells the shape.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from cbquant._arguments import as_shape
from cbquant.files._info import TensorInfo
from cbquant.files._text import quoted
from cbquant.files.conventions._parts import Convention, Parts, described
from cbquant.files.conventions._recipe import Misfit, Nested, Note, Recipe, dtype_of

_STATE = ".quant_state.bitsandbytes__"
_TYPES = ("nf4", "fp4")
_TABLE, _NESTED_TABLE = 16, 256


class _State(NamedTuple):
    """What the JSON says, once it can be believed."""

    shape: tuple[int, ...]
    block: int
    nested_block: int
    nested_offset: float


def _of_type(kind: str) -> Convention:
    def read(parts: Parts, stem: str) -> Recipe | Note | None:
        codes, state = parts.find(stem), parts.find(f"{stem}{_STATE}{kind}")
        if codes is None or state is None:
            return None
        return _recipe(parts, codes, state, kind)

    return Convention(_STATE + kind, read)


def _absmax(parts: Parts, stem: str) -> Recipe | Note | None:
    """Only what the others do not see: nothing tells the shape."""
    codes, table = parts.find(stem), parts.find(f"{stem}.quant_map")
    if codes is None or table is None or any(parts.find(f"{stem}{_STATE}{kind}") for kind in _TYPES):
        return None
    raise Misfit(stem, f"its part {quoted(stem + _STATE + 'nf4')}, or fp4, is missing")


def _recipe(parts: Parts, codes: TensorInfo, state: TensorInfo, kind: str) -> Recipe:
    name = codes.name
    absmax, table = parts.need(f"{name}.absmax", name), parts.need(f"{name}.quant_map", name)
    found = _parse(parts.text(state, name), kind, name)
    elements = math.prod(found.shape)
    _check(name, table, ("F32",), _TABLE)
    if codes.nbytes != -(-elements // 2):
        raise Misfit(name, f"{codes.nbytes} bytes of codes: expected {-(-elements // 2)} for shape {found.shape}")
    blocks = -(-elements // found.block)
    nested = None
    if dtype_of(absmax) == "U8":
        nested = _nested(parts, name, found, blocks)
    _check(name, absmax, ("U8",) if nested else ("F32", "F16", "BF16"), blocks)
    return Recipe(
        name,
        kind,
        found.shape,
        codes,
        (codes.nbytes,),
        absmax,
        (blocks,),
        block=found.block,
        table=table,
        nested=nested,
        others=(state,),
    )


def _nested(parts: Parts, name: str, state: _State, blocks: int) -> Nested:
    absmax = parts.need(f"{name}.nested_absmax", name)
    table = parts.need(f"{name}.nested_quant_map", name)
    _check(name, table, ("F32",), _NESTED_TABLE)
    _check(name, absmax, ("F32",), -(-blocks // state.nested_block))
    return Nested(absmax, table, state.nested_offset, state.nested_block)


def _check(name: str, part: TensorInfo, dtypes: tuple[str, ...], count: int) -> None:
    if dtype_of(part) not in dtypes or math.prod(part.shape) != count:
        raise Misfit(name, f"{described(part)}: expected {count} of {' or '.join(dtypes)}")


def _parse(text: bytes, kind: str, name: str) -> _State:
    try:
        state = json.loads(text)
        found = _State(
            as_shape([_whole(length, 0) for length in _list(state["shape"])]),
            _even(state["blocksize"]),
            _whole(state.get("nested_blocksize", 1), 1),
            _finite(state.get("nested_offset", 0.0)),
        )
        stated = state.get("quant_type", kind)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Misfit(name, f"its quant_state: {type(error).__name__}: {quoted(str(error))}") from None
    if stated != kind:
        raise Misfit(name, f"its quant_state: the name says {kind}, the text {quoted(str(stated))}")
    return found


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {value!r}")
    return value


def _whole(value: Any, least: int) -> int:
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"expected a whole number from {least}, got {value!r}")
    return value


def _even(value: Any) -> int:
    if _whole(value, 1) % 2:
        raise ValueError(f"expected an even block, got {value}")
    return int(value)


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value!r}")
    return float(value)


CONVENTIONS = (*map(_of_type, _TYPES), Convention(".absmax", _absmax))
