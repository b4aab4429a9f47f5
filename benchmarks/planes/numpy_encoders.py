"""Planes as one would make them with NumPy and ml_dtypes: what `cbquant.planes.quantize` is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.planes.cases import Case
from cbquant import _codecs
from cbquant.reference import planes as reference

Floats = NDArray[np.float32]
_TILE, _RUN = 128, 64


def encode(case: Case, x: Floats) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Codes and scales of ``[n, k]``, by the rules of docs/planes.md."""
    if case.fmt.is_flat:
        return _encode_table(case.fmt.name, x)
    if case.fmt.scales == "tile":
        return _encode_tiles(case.fmt.code, x)
    if case.fmt.scales == "e4m3fn":
        return _encode_nvfp4(x)
    return _encode_mx(case, x)


def _cast(kind: str, values: Floats) -> NDArray[np.uint8]:
    """To codes; what is beyond the largest becomes that."""
    import ml_dtypes

    if kind == "mxint8":
        return np.clip(np.rint(values * np.float32(64)), -127, 127).astype(np.int8).view(np.uint8)
    dtype = getattr(ml_dtypes, _codecs.ML_DTYPES[kind])
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.clip(values, -largest, largest).astype(dtype).view(np.uint8)


def _pack(codes: NDArray[np.uint8], bits: int, high_first: bool = False) -> NDArray[np.uint8]:
    """Codes of rows, several to the byte."""
    if bits == 4:
        first, second = codes[..., ::2], codes[..., 1::2]
        return first << 4 | second if high_first else first | second << 4
    a, b, c, d = (codes[..., i::4] for i in range(4))
    return np.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], axis=-1).reshape(*codes.shape[:-1], -1)


def _encode_mx(case: Case, x: Floats) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    blocks = x.reshape(x.shape[0], -1, case.fmt.group)
    amax = np.abs(blocks).max(axis=-1)
    exponent = np.frexp(amax)[1] - 1 - _codecs.KINDS[case.fmt.code].emax
    codes = _cast(case.fmt.code, blocks * np.exp2(-exponent).astype(np.float32)[..., None]).reshape(x.shape)
    if case.packed or case.fmt.always_packed:
        codes = _pack(codes, case.fmt.bits)
    return codes, (exponent + 127).astype(np.uint8)


def _encode_nvfp4(x: Floats) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    blocks = x.reshape(x.shape[0], -1, 16)
    amax = np.abs(blocks).max(axis=-1)
    factor = amax.max() / np.float32(448 * 6)
    scales = _cast("e4m3fn", amax / np.float32(6) / factor)
    import ml_dtypes

    divisors = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * factor
    return _pack(_cast("e2m1", blocks / divisors[..., None]).reshape(x.shape), 4), scales


def _encode_tiles(kind: str, x: Floats) -> tuple[NDArray[np.uint8], Floats]:
    import ml_dtypes

    tiles = x.reshape(x.shape[0] // _TILE, _TILE, x.shape[1] // _TILE, _TILE)
    largest = np.float32(ml_dtypes.finfo(getattr(ml_dtypes, _codecs.ML_DTYPES[kind])).max)
    scales = np.abs(tiles).max(axis=(1, 3)) / largest
    return _cast(kind, tiles / scales[:, None, :, None]).reshape(x.shape), scales


def _encode_table(name: str, x: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """ml_dtypes does not have these: the codes are looked up between the middles of the values."""
    table = np.asarray(reference.CODES[name], np.float32)
    order = np.lexsort((~np.signbit(table), table)).astype(np.uint8)  # -0.0 comes before 0.0
    middles = (table[order][1:] + table[order][:-1]) / np.float32(2)
    runs = x.reshape(-1, _RUN)
    scales = np.abs(runs).max(axis=-1)
    codes = order[np.searchsorted(middles, runs / scales[:, None])]
    return _pack(codes.reshape(-1), 4, high_first=True), scales
