"""Every kernel for every format against the CPU and against float64. Outputs are filled with other bytes first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant import cuda
from cbquant._formats import Format
from cbquant.cuda import _driver
from cbquant.cuda._layouts import INSTRUCTIONS
from cbquant.gpucheck import _data
from cbquant.gpucheck._items import Context, Item, NotRun, Wrong, need_gpu

#: Relative L2 of a product, as issue 7 has it.
LIMITS = {"bf16": 1e-2, "f32": 1e-5}
#: How many products go into a sum at a time, and what each such addition may lose of the magnitudes: tensor cores take
#: 16 and cut where others round; without them each of four lanes has a quarter of K. Twice as much is allowed.
SUMS = {"bf16": (16, 2.0**-20), "f32": (4, 2.0**-23)}
HALF_UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
BITS = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}
HOLDS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
#: M, N, K in blocks (of at least 32 elements), type of x.
SHAPES = [
    (1, 1, 1, "float32"),
    (1, 300, 3, "bfloat16"),
    (2, 65, 7, "float16"),
    (7, 64, 2, "float32"),
    (8, 129, 5, "bfloat16"),
    (9, 63, 9, "bfloat16"),
    (17, 130, 3, "float32"),
    (64, 128, 4, "bfloat16"),
    (65, 257, 6, "float16"),
    (130, 299, 11, "bfloat16"),
]
POISON = {"dequant": 0x5A, "product": 0xFF}  # 0xFF..: NaN in every float type


def items(context: Context) -> Iterator[Item]:
    need_gpu(context)
    for fmt in context.formats:
        yield Item(f"dequant {fmt.name}", partial(check_dequant, context, fmt))
    for fmt in context.blocks:
        if fmt.name in INSTRUCTIONS:
            yield Item(f"fragments {fmt.name}", partial(check_fragments, context, fmt))
    for name, check in (("matmul", check_matmul), ("moe", check_moe)):
        for fmt in context.multiplied:
            yield Item(f"{name} {fmt.name}", partial(check, context, fmt, "blocks"))
            if fmt.name in INSTRUCTIONS:
                yield Item(f"{name} {fmt.name} fragments", partial(check, context, fmt, "fragments"))
    from cbquant.gpucheck import _planes

    for fmt_name, how in _planes.FORMATS:
        yield Item(
            f"planes {fmt_name}{' over a number' if how == 'divisor' else ''}",
            partial(_planes.check, context, fmt_name, how),
        )
    if not context.small:
        yield Item("dequant of more than 2^31 elements", partial(check_many, context))


# ---- dequant ----


def check_dequant(context: Context, fmt: Format) -> dict[str, Any]:
    """The CPU's bits, for each dtype, for a block, a few, and more than a tile."""
    counts = (1, 33) if context.small else (1, 7, 129, 20_011)
    for n in counts:
        blocks = _data.random_blocks(fmt, n, n).reshape(-1)
        tensor = cbquant.QuantTensor(blocks, fmt.name, (n * fmt.elements,))
        weight = cuda.load(tensor, context.device)
        compare_decoded(context, weight, tensor, f"{n} blocks")
    return {"kernel": cuda.last_kernel(), "blocks": list(counts)}


def check_fragments(context: Context, fmt: Format) -> dict[str, Any]:
    """The CPU's bits of weights in fragments, and their bytes back: less than a tile, more than one, experts."""
    shapes = [(1, 1), (65, 3), (3, 70, 9)]
    for *rows, blocks in shapes:
        shape = (*rows, blocks * fmt.elements)
        raw = _data.random_blocks(fmt, int(np.prod(rows)) * blocks, blocks).reshape(-1)
        tensor = cbquant.QuantTensor(raw, fmt.name, shape)
        weight = cuda.load(tensor, context.device, layout="fragments")
        if weight.to_host().raw.tobytes() != raw.tobytes():
            raise Wrong(f"{shape}: other bytes came back")
        compare_decoded(context, weight, tensor, f"{shape}")
    return {"kernel": cuda.last_kernel(), "shapes": shapes}


def compare_decoded(context: Context, weight: cuda.Weight, tensor: cbquant.QuantTensor, what: str) -> None:
    """The GPU's values in each dtype have the CPU's bits."""
    for dtype, holds in HOLDS.items():
        out = poisoned(weight.shape, dtype, context.device, POISON["dequant"])
        cuda.dequant(weight, dtype, out=out)
        found, expected = np.empty(weight.shape, holds), np.empty(weight.shape, holds)
        out.to_numpy(found)
        tensor.dequant(dtype, out=expected)
        compare_bits(found, expected, dtype, f"{what} as {dtype}")


def compare_bits(found: NDArray[Any], expected: NDArray[Any], dtype: str, what: str) -> None:
    """Equal, or NaN in both."""
    same = found.view(BITS[dtype]) == expected.view(BITS[dtype])
    if same.all():
        return
    values = [as_float64(a, dtype) for a in (found, expected)]
    same |= np.isnan(values[0]) & np.isnan(values[1])
    if not same.all():
        at = int(np.argmin(same))
        count = int((~same).sum())
        text = f"{count} of {same.size} elements differ, the first at {at}: {float(values[0].flat[at])!r}"
        raise Wrong(f"{what}: {text}, expected {float(values[1].flat[at])!r}")


def check_many(context: Context) -> dict[str, Any]:
    """More elements than a 32-bit number counts: a pattern of blocks again and again, every element looked at."""
    fmt = next((f for f in context.blocks if f.name == "q4_0"), None)
    if fmt is None:
        raise NotRun("q4_0 is not among the formats")
    period = 1 << 20  # blocks
    n = (1 << 31) // fmt.elements + period + 5
    need = n * (fmt.bytes + 2 * fmt.elements)
    free = cuda.device_info(context.device)["free_bytes"]
    if free < 1.1 * need:
        raise NotRun(f"{need / 1e9:.1f} GB of GPU memory are needed, {free / 1e9:.1f} GB are free")
    host = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if host < 3 * n * fmt.bytes:
        raise NotRun(f"{3 * n * fmt.bytes / 1e9:.1f} GB of memory are needed, {host / 1e9:.1f} GB are free")
    some = _data.random_blocks(fmt, period)
    tensor = cbquant.QuantTensor(_data.repeated(some, n).reshape(-1), fmt.name, (n * fmt.elements,))
    weight = cuda.load(tensor, context.device)
    out = poisoned(weight.shape, "bfloat16", context.device, POISON["dequant"])
    cuda.dequant(weight, out=out)
    expected = np.empty(period * fmt.elements, np.uint16)
    cbquant.dequant(some.reshape(-1), fmt.name, dtype="bfloat16", out=expected)
    native, found = _driver.ready("gpucheck", context.device), np.empty_like(expected)
    for first in range(0, weight.size, expected.size):
        here = found[: min(expected.size, weight.size - first)]
        native.download(out._memory, 2 * first, here.view(np.uint8), 0)
        compare_bits(here, expected[: here.size], "bfloat16", f"from element {first} on")
    return {"elements": weight.size}


# ---- products ----


def check_matmul(context: Context, fmt: Format, layout: str) -> dict[str, Any]:
    """Odd shapes, both precisions, and a row of W that is no number."""
    worst: dict[str, float] = {}
    for seed, (m, n, blocks, dtype) in enumerate(SHAPES[::4] if context.small else SHAPES):
        k = blocks * max(fmt.elements, 32) + (5 * (seed % 2) if fmt.elements == 1 else 0)
        rows = _data.finite_rows(fmt, n, k, seed)
        bad = _data.row_that_is_no_number(fmt, k) if n > 1 else None
        if bad is not None:
            rows[n // 2] = bad
        weight = cuda.load(cbquant.QuantTensor(rows.reshape(-1), fmt.name, (n, k)), context.device, layout=layout)
        x, values = make_x(m, k, dtype, seed)
        w = _data.rounded_weights(rows, fmt)
        for precision in LIMITS:
            y = [multiplied(context, x, weight, precision, dtype, (m, n)) for _ in range(2)]
            what = f"M={m} N={n} K={k} {dtype} {precision}"
            if y[0].tobytes() != y[1].tobytes():
                raise Wrong(f"{what}: the same call gave other bits")
            judge(y[0], product(values, w, precision), dtype, precision, k, what, worst)
    return {"kernel": cuda.last_kernel(), **worst}


def multiplied(
    context: Context, x: NDArray[Any], weight: cuda.Weight, precision: str, dtype: str, shape: tuple[int, ...]
) -> NDArray[Any]:
    out = poisoned(shape, dtype, context.device, POISON["product"])
    cuda.matmul(x, weight, out=out, precision=precision)
    return out.to_numpy(np.empty(shape, HOLDS[dtype]))


def check_moe(context: Context, fmt: Format, layout: str) -> dict[str, Any]:
    """Few tokens, and so many to an expert that Hopper takes its own kernel."""
    worst: dict[str, float] = {}
    for tokens in (13,) if context.small else (13, 130):
        compare_moe(context, fmt, layout, tokens, worst)
    return {"kernel": cuda.last_kernel(), **worst}


def compare_moe(context: Context, fmt: Format, layout: str, tokens: int, worst: dict[str, float]) -> None:
    """Experts that nobody chose, tokens without one, with and without weights of experts."""
    experts, picks, n = 5, 3, 70
    k = 3 * max(fmt.elements, 32)
    rng = np.random.default_rng(fmt.tag)
    rows = _data.finite_rows(fmt, experts * n, k, 3)
    tensor = cbquant.QuantTensor(rows.reshape(-1), fmt.name, (experts, n, k))
    weight = cuda.load(tensor, context.device, layout=layout)
    w = _data.rounded_weights(rows, fmt).reshape(experts, n, k)
    ids = rng.choice(np.array([-1, 0, 1, 3, 4], np.int32), (tokens, picks))
    ids[0] = -1
    factors = rng.random((tokens, picks)).astype(np.float32)
    for precision in ("bf16",) if context.small else tuple(LIMITS):
        for dtype in ("bfloat16", "float32"):
            x, values = make_x(tokens, k, dtype, fmt.tag)
            each = [product(values[t : t + 1], w[max(e, 0)], precision) for t in range(tokens) for e in ids[t]]
            parts = [
                np.concatenate(p).reshape(tokens, picks, n) * (ids >= 0)[..., None] for p in zip(*each, strict=True)
            ]
            sums = [(p * factors[..., None].astype(np.float64)).sum(1) for p in parts]
            for weights, expected in ((None, parts), (factors, sums)):
                out = poisoned(expected[0].shape, dtype, context.device, POISON["product"])
                cuda.moe_matmul(x, weight, ids, weights, out=out, precision=precision)
                y = out.to_numpy(np.empty(out.shape, HOLDS[dtype]))
                what = f"{dtype} {precision} {'added up' if weights is not None else 'each expert'}"
                judge(y, (expected[0], expected[1]), dtype, precision, k + picks, what, worst)


def make_x(m: int, k: int, dtype: str, seed: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Gaussian rows as the library takes them, and their values. bfloat16 goes as float32 that is exact in it, for
    NumPy has no bfloat16."""
    x = np.random.default_rng([seed, m]).standard_normal((m, k)).astype(np.float32)
    if dtype == "bfloat16":
        x = _data.from_bf16(_data.to_bf16(x))
    held = x.astype(np.float16) if dtype == "float16" else x
    return held, held.astype(np.float64)


def product(
    x: NDArray[np.float64], w: NDArray[np.float64], precision: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """In float64, of x as the precision has it; and the sum of the magnitudes of what was added up."""
    if precision == "bf16":
        x = _data.from_bf16(_data.to_bf16(x.astype(np.float32))).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return x @ w.T, np.abs(x) @ np.abs(w).T


def judge(
    y: NDArray[Any],
    expected: tuple[NDArray[np.float64], NDArray[np.float64]],
    dtype: str,
    precision: str,
    k: int,
    what: str,
    worst: dict[str, float],
) -> None:
    """What is no number must be none, all else near: as a whole, and each element as far as sums of float32 allow.

    The whole is judged for results in float32, where nothing but the sums counts, by the limit of the precision; a
    result in another type adds half a unit of it to each element.
    """
    found, (values, magnitudes) = as_float64(y, dtype), expected
    numbers = np.isfinite(values)
    if not (np.isfinite(found) == numbers).all():
        at = np.unravel_index(int(np.argmin(np.isfinite(found) == numbers)), found.shape)
        raise Wrong(f"{what}: {float(found[at])!r} at {tuple(map(int, at))}, expected {float(values[at])!r}")
    if not numbers.any():
        return
    error = np.where(numbers, found - np.where(numbers, values, 0), 0)
    norm = float(np.linalg.norm(values[numbers]))
    relative = float(np.linalg.norm(error)) / norm if norm else float(np.linalg.norm(error))
    at_a_time, loss = SUMS[precision]
    allowed = (k / at_a_time + 8) * loss * np.where(numbers, magnitudes, 0)
    allowed += HALF_UNIT[dtype] * np.abs(np.where(numbers, values, 0)) + 2.0**-25 * (dtype == "float16")
    of_allowed = float(np.max(np.abs(error) / np.maximum(allowed, 1e-30)))
    name = f"{precision}, {dtype}"
    worst[f"L2 {name}"] = max(worst.get(f"L2 {name}", 0.0), relative)
    worst[f"element {name}"] = max(worst.get(f"element {name}", 0.0), of_allowed)
    limit = LIMITS[precision] if dtype == "float32" else max(LIMITS[precision], 2 * HALF_UNIT[dtype])
    if relative > limit:
        raise Wrong(f"{what}: relative L2 {relative:.2e}, at most {limit:.0e}")
    if of_allowed > 1:
        at = np.unravel_index(int(np.argmax(np.abs(error) / np.maximum(allowed, 1e-30))), error.shape)
        text = f"{float(found[at])!r} at {tuple(map(int, at))}, expected {float(values[at])!r}"
        raise Wrong(f"{what}: {text}, {of_allowed:.1f} times what sums of float32 allow")


# ---- both ----


def poisoned(shape: tuple[int, ...], dtype: str, device: int, byte: int) -> cuda.DeviceArray:
    """A new array on the device, filled with a byte."""
    array = cuda.DeviceArray.empty(shape, dtype, device, 0)
    if array.nbytes:
        _driver.ready("gpucheck", device).fill(array._memory, array._offset, array.nbytes, byte, 0)
    return array


def as_float64(values: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """The values; bfloat16 comes as its bits."""
    with np.errstate(invalid="ignore"):
        return (_data.from_bf16(values) if dtype == "bfloat16" else values).astype(np.float64)
