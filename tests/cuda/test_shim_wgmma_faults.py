"""Faults planted into the kernel for Hopper are found, whatever the schedule: tests would notice them.

They are all in one library, which a variable tells which of them is there."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cuda import wgmma
from tests.cuda.products import Weights, assert_close, exact, make_weights, make_x
from tests.cuda.shim import Shim, ShimError, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SEEDS = range(20)
PRODUCT, X = "wgmma_product.cuh", "wgmma_x.cuh"
DECODE = "decode_run<T>(low, high, 4 * quad + i, fragments[i % 2]);"
BEGIN = "begin_products<N, L>(staged_x + x.stage * L::x_stage, i % 2, fragments[i % 2], s);"
WAIT_FOR_EMPTY = "cu_mbarrier_wait(r.empty + r.stage, r.parity);"
ALIGN = "(0u - cu_shared_address(shared)) % L::aligned"
FILLERS = "ring<L::w_stages>::init(w, W_SENDERS, WGMMA_CONSUMERS / 32);"
EMPTIERS = "ring<L::x_stages>::init(x, 1, WGMMA_CONSUMERS / 32);"
DONE_WITH_W = "empty_stage(w.empty + w.stage);"
SWIZZLED = "((i % 4 * 2 + half) ^ row % 8)"

FAULTS: dict[str, wgmma.Fault] = {
    "no wait for a step of W": ((PRODUCT, "ring<L::w_stages>::wait_full(w);", ""),),
    "no wait for a chunk of x": ((PRODUCT, "if (i % 2 == 0) ring<L::x_stages>::wait_full(x);", ""),),
    "the other parity of full stages": (
        (PRODUCT, "cu_mbarrier_wait(r.full + r.stage, r.parity);", "cu_mbarrier_wait(r.full + r.stage, r.parity ^ 1);"),
    ),
    "the other parity of empty stages": (
        (
            PRODUCT,
            "cu_mbarrier_wait(r.empty + r.stage, r.parity ^ 1);",
            "cu_mbarrier_wait(r.empty + r.stage, r.parity);",
        ),
    ),
    "a parity that does not change": ((PRODUCT, "r.parity ^= 1;", ""),),
    "no wait for empty stages of W": ((PRODUCT, "ring<L::w_stages>::wait_empty(r);", ""),),
    "no wait for empty stages of x": ((PRODUCT, "ring<L::x_stages>::wait_empty(r);", ""),),
    "a stage of x is empty too early": ((PRODUCT, "last = x.empty + x.stage;", "empty_stage(x.empty + x.stage);"),),
    "a stage of W is empty too early": (
        (PRODUCT, DECODE, f"if (quad + i == 0) {DONE_WITH_W} {DECODE}"),
        (PRODUCT, f"{DONE_WITH_W}\n        ring<L::w_stages>::next(w);", "ring<L::w_stages>::next(w);"),
    ),
    "no wait for products": ((PRODUCT, "end_products<1>(fragments[1 - i % 2]);", ""),),
    "no wait for the last products": ((PRODUCT, "cu_wgmma_wait<0>();", ""),),
    "one set of registers": (
        (PRODUCT, DECODE, DECODE.replace("[i % 2]", "[0]")),
        (PRODUCT, BEGIN, BEGIN.replace("[i % 2]", "[0]")),
    ),
    "no fence of registers": ((PRODUCT, "cu_wgmma_fence();", ""),),
    "no fence of barriers": ((PRODUCT, "cu_proxy_fence();", ""),),
    "no barrier after the barriers": ((PRODUCT, "cu_barrier();", ""),),
    "too few who fill": ((PRODUCT, FILLERS, FILLERS.replace("W_SENDERS", "W_SENDERS - 1")),),
    "too few who empty": ((PRODUCT, EMPTIERS, EMPTIERS.replace("WGMMA_CONSUMERS / 32", "1")),),
    "too few bytes": (
        (PRODUCT, "cu_mbarrier_expect(r.full + r.stage, all);", "cu_mbarrier_expect(r.full + r.stage, all - 16);"),
    ),
    "barriers that two rings have": ((PRODUCT, "x.full + 2 * L::x_stages", "x.full + L::x_stages"),),
    "x is at no multiple of 1024": ((PRODUCT, ALIGN, f"{ALIGN} + 128"),),
    "another stage of x": ((PRODUCT, BEGIN, BEGIN.replace("x.stage *", "(x.stage ^ 1) *")),),
    "more registers than there are": (
        (PRODUCT, "cu_fewer_registers<PRODUCER_REGISTERS>();", "cu_fewer_registers<48>();"),
    ),
    "no swizzling": ((X, SWIZZLED, "(i % 4 * 2 + half)"),),
    "the swizzling of another row": ((X, SWIZZLED, "((i % 4 * 2 + half) ^ row % 4)"),),
    "k in its own order": (
        (X, "v[4 * q + 2 * half]", "v[8 * half + 2 * q]"),
        (X, "v[4 * q + 2 * half + 1]", "v[8 * half + 2 * q + 1]"),
    ),
    "groups of experts overlap": (
        (X, "return first / 8 + expert + (place - first) / 8;", "return first / 8 + (place - first) / 8;"),
    ),
}


class Problem(NamedTuple):
    x: NDArray[Any]
    weights: list[Weights]
    ids: NDArray[np.int32] | None
    processors: int
    expected: tuple[NDArray[np.float64], NDArray[np.float64]]


@cache
def problems() -> list[Problem]:
    """Experts; pieces of tiles; two tiles for a CTA, and an end of k: what takes long comes last."""
    made = []
    for k, processors in ((64, 2), (512, 3), (1312, 1)):
        x = make_x(11, k, "bfloat16")
        experts = 3 if k == 64 else 1
        weights = [make_weights("q4_0", 130 if experts == 1 else 40, k, seed=e) for e in range(experts)]
        all_of = [exact(x, "bfloat16", w.values, "bf16") for w in weights]
        ids = np.arange(22, dtype=np.int32).reshape(11, 2) % 3 if experts > 1 else None
        picked = (
            [(row // 2, e) for row, e in enumerate(ids.ravel())] if ids is not None else [(row, 0) for row in range(11)]
        )
        expected = tuple(np.stack([all_of[e][part][row] for row, e in picked]) for part in (0, 1))
        made.append(Problem(x, weights, ids, processors, expected))  # type: ignore[arg-type]
    return made


def wrong(shim: Shim, seed: int) -> bool:
    shim.seed(seed)
    try:
        for p in problems():
            options = {"ids": p.ids, "processors": p.processors, "extra_stride": 8}
            y = wgmma.multiply(shim, p.x, "bfloat16", p.weights, **options)
            assert_close(y, "float32", p.expected, p.x.shape[1])
        shim.free()  # looks beside allocations, too
    except (ShimError, AssertionError):
        shim.sizes.clear()
        return True
    return False


@cache
def library() -> Path:
    return wgmma.planted(tuple(FAULTS.values()))


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Shim:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "9.0x3")
    return Shim(library())


def test_without_a_fault_all_is_well(shim: Shim) -> None:
    ctypes.c_int.in_dll(shim.library, "planted_fault").value = -1
    assert not any(wrong(shim, seed) for seed in SEEDS)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found_in_every_schedule(shim: Shim, name: str) -> None:
    ctypes.c_int.in_dll(shim.library, "planted_fault").value = list(FAULTS).index(name)
    assert [seed for seed in SEEDS if not wrong(shim, seed)] == []
