"""Fixtures: cbquant.cuda on the shim."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import cbquant
from cbquant import cuda
from tests.cuda.module import in_use
from tests.cuda.product_inputs import E, K, N, tensor
from tests.cuda.shim import Shim, why_not


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_stays() -> None:
    """Tests collect garbage to see that nothing is left. What other modules have loaded need not be looked at each
    time: PTX in the interpreter is some million objects."""
    gc.freeze()


@pytest.fixture
def on_shim(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Shim]]:
    """The C module built with the shim, in the hands of cbquant.cuda; and the shim. Nothing may be left allocated.

    What a test sets in the environment is taken back after that: memory is freed on its device."""
    if reason := why_not():
        pytest.skip(reason)
    with in_use() as (module, shim):
        yield module, shim
    shim.free()
    gc.collect()
    assert shim.library.shim_live(None) == 0


@pytest.fixture
def native(on_shim: tuple[Any, Shim]) -> Any:
    return on_shim[0]


@pytest.fixture
def shim(on_shim: tuple[Any, Shim]) -> Shim:
    return on_shim[1]


@pytest.fixture
def w(native: Any) -> Iterator[cuda.Weight]:
    yield from loaded(tensor())


@pytest.fixture(params=["blocks", "fragments"])
def experts(native: Any, request: pytest.FixtureRequest) -> Iterator[cuda.Weight]:
    yield from loaded(tensor("q4_k", E, N, K), request.param)


def loaded(t: cbquant.QuantTensor, layout: str = "auto") -> Iterator[cuda.Weight]:
    weight = cuda.load(t, layout=layout)
    yield weight
    del weight._memory  # pytest holds on to the object


@pytest.fixture
def stream(shim: Shim) -> Iterator[int]:
    handle = ctypes.c_void_p()
    shim.call("cudaStreamCreate", ctypes.byref(handle))
    assert handle.value is not None
    yield handle.value
    shim.library.shim_capture(handle, 0)
    gc.collect()
    shim.call("cudaStreamDestroy", handle)
