"""gpucheck's sections with the kernels on the CPU: they pass, and what is wrong is found."""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from cbquant import _formats, cuda
from cbquant.cuda import _workspace
from cbquant.gpucheck import (
    _benchmarks,
    _ceilings,
    _correctness,
    _graphs,
    _instructions,
    _items,
    _operator_speed,
    _operators,
    _report,
    _sections,
    _timing,
)
from cbquant.gpucheck._items import FAILED, NOT_RUN, OK, Context, Wrong
from tests.cuda import fake_torch
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build, why_not
from tests.paths import ROOT

NAMES = ["q4_0", "q4_k", "iq2_xxs", "f16"]


def make_context(*names: str) -> Context:
    return Context(time.time() + 600, [_formats.get(name) for name in names or NAMES], small=True)


def results(items: Iterator[_items.Item], context: Context) -> dict[str, _items.Line]:
    lines: dict[str, _items.Line] = {}
    assert _items.run(items, context, lambda line: lines.update({line["item"]: line}))
    return lines


# ---- correctness ----


def test_every_kernel_of_some_formats_passes(native: Any) -> None:
    context = make_context()
    lines = results(_correctness.items(context), context)
    assert {line["state"] for line in lines.values()} == {OK}, [line["text"] for line in lines.values()]
    of_formats = {f"{op} {name}" for op in ("dequant", "matmul", "moe") for name in NAMES}
    of_formats |= {f"{op}{name} fragments" for op in ("matmul ", "moe ") for name in ("q4_0", "q4_k")}
    of_formats |= {f"fragments {name}" for name in ("q4_0", "q4_k")}
    planes = ("fp8_e4m3", "fp8_e5m2", "mxint8", "mxfp4", "nf4", "fp4", "nvfp4", "nvfp4 over a number")
    assert set(lines) == of_formats | {f"planes {name}" for name in planes}
    assert lines["matmul q4_0"]["data"]["L2 f32, float32"] < 1e-6


class Broken:
    """The module, in which one function goes wrong afterwards."""

    def __init__(self, native: Any, name: str, spoil: Callable[[Any], None]) -> None:
        self._native, self._name, self._spoil = native, name, spoil

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._native, name)
        if name != self._name:
            return function

        def broken(*arguments: Any) -> Any:
            result = function(*arguments)
            self._spoil(arguments)
            return result

        return broken


def results_with(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, items: Iterator[_items.Item], context: Context
) -> dict[str, _items.Line]:
    """`results` with a broken module, of which nothing is left."""
    with monkeypatch.context() as patch:
        patch.setattr("cbquant.cuda._driver._native", broken)
        lines = results(items, context)
    for key in [key for key in _workspace._workspaces if key[0] is broken]:
        del _workspace._workspaces[key]
    return lines


def bits_of(memory: Any, offset: int, count: int, kind: Any) -> Any:
    return (kind * count).from_address(memory.address + offset)


def flip_a_bit(arguments: Any) -> None:
    *_, out, out_offset, _stream = arguments
    bits_of(out, out_offset, 1, ctypes.c_uint8)[0] ^= 1


def flip_a_byte(arguments: Any) -> None:
    bits_of(arguments[1], arguments[2], 1, ctypes.c_uint8)[0] ^= 255


def leave_out(arguments: Any) -> None:
    """One element of y as it was before."""
    memory, offset, dtype, _ = arguments[3]
    bits_of(memory, offset, 2 if dtype != "float32" else 4, ctypes.c_uint8)[:] = b"\xff" * (
        2 if dtype != "float32" else 4
    )


def halve(arguments: Any) -> None:
    memory, offset, dtype, _ = arguments[3]
    if dtype == "float32":
        bits_of(memory, offset, 1, ctypes.c_float)[0] *= 0.5


@pytest.mark.parametrize(
    ("item", "function", "spoil", "text"),
    [
        ("dequant q4_0", "dequant", flip_a_bit, "1 of 32 elements differ, the first at 0"),
        ("matmul q4_0", "matmul", leave_out, r"nan at \(0, 0\), expected"),
        ("matmul q4_0", "matmul", halve, "relative L2|times what sums of float32 allow"),
        ("moe q4_0", "matmul", leave_out, r"nan at \(0, 0, 0\), expected"),
        ("matmul q4_0 fragments", "matmul", halve, "relative L2|times what sums of float32 allow"),
        ("fragments q4_0", "unpack", flip_a_byte, "other bytes came back"),
        ("fragments q4_0", "dequant_fragments", flip_a_bit, "1 of 32 elements differ, the first at 0"),
    ],
)
def test_what_is_wrong_is_found(
    native: Any, monkeypatch: pytest.MonkeyPatch, item: str, function: str, spoil: Any, text: str
) -> None:
    context = make_context("q4_0")
    lines = results_with(Broken(native, function, spoil), monkeypatch, _correctness.items(context), context)
    assert lines[item]["state"] == FAILED
    assert re.search(text, lines[item]["text"])


def test_one_wrong_element_among_many_is_found() -> None:
    """Which relative L2 alone would let pass."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((130, 512)), rng.standard_normal((300, 512))
    expected = _correctness.product(x, w, "f32")
    y = expected[0].astype(np.float32)
    _correctness.judge(y, expected, "float32", "f32", 512, "sound", {})
    y[5, 7] -= np.float32(x[5, 3] * w[7, 3])  # a product is missing
    with pytest.raises(Wrong, match=r"at \(5, 7\), expected .* times what sums of float32 allow"):
        _correctness.judge(y, expected, "float32", "bf16", 512, "a product less", {})


def test_what_is_no_number_must_be_none() -> None:
    values = np.array([[1.0, np.nan, np.inf]])
    expected = values, np.abs(values)
    _correctness.judge(np.array([[1.0, np.inf, np.nan]], np.float32), expected, "float32", "f32", 32, "", {})
    for wrong in ([[1.0, 0.0, np.nan]], [[np.nan, np.nan, np.nan]]):
        with pytest.raises(Wrong, match="expected"):
            _correctness.judge(np.array(wrong, np.float32), expected, "float32", "f32", 32, "", {})


def test_big_decoding_says_what_it_lacks(native: Any) -> None:
    with pytest.raises(_items.NotRun, match=r"5\.\d GB of GPU memory are needed, 1\.1 GB are free"):
        _correctness.check_many(make_context("q4_0"))


# ---- operators ----


def test_every_operator_passes(native: Any) -> None:
    context = make_context()
    lines = results(_operators.items(context), context)
    assert {line["state"] for line in lines.values()} == {OK}, [line["text"] for line in lines.values()]
    assert set(lines) == set(cbquant.deepseek.__all__)


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("vector_add", -1, r"float32, shape \(3, 40\): nan at \(0, 0\), expected .* inf times the tolerance"),
        ("indexer_topk", -1, r"at \(0, 0\), expected"),
        ("indexer_select", -1, r"at \(0, 0\), expected"),
        ("route", -1, r"weights: nan at \(0, 0\)"),
        ("route", -2, "ids are no 6 different experts of 64"),
    ],
)
def test_a_wrong_element_of_an_operator_is_found(
    native: Any, monkeypatch: pytest.MonkeyPatch, name: str, number: int, text: str
) -> None:
    """The first one of a result is as it was before."""

    def spoil(arguments: Any) -> None:
        if arguments[1] in (name, "indexer_topk"):
            memory, offset, *_ = arguments[2][number]
            bits_of(memory, offset, 4, ctypes.c_uint8)[:] = b"\xff" * 4

    context = make_context()
    items = (item for item in _operators.items(context) if item.name == name)
    lines = results_with(Broken(native, "run_operator", spoil), monkeypatch, items, context)
    assert lines[name]["state"] == FAILED
    assert re.search(text, lines[name]["text"])


# ---- instructions ----


@pytest.fixture(scope="module")
def device() -> _instructions.Device:
    if reason := why_not():
        pytest.skip(reason)
    shim = Shim(build([ROOT / "tests" / "cuda" / "shim_kernels.cu"], KERNEL_INCLUDES))

    def call(function: str, arrays: Sequence[NDArray[Any]], *numbers: int) -> list[NDArray[Any]]:
        uploaded = [shim.upload(array) for array in arrays]
        shim.call(function, *uploaded, *numbers)
        copies = [array.copy() for array in uploaded]
        shim.free()
        return copies

    return call


@pytest.mark.parametrize("name", _instructions.CHECKS)
def test_the_shim_passes_what_gpus_must(device: _instructions.Device, name: str) -> None:
    assert _instructions.CHECKS[name](device)


@pytest.mark.parametrize("name", _instructions.CHECKS)
def test_another_device_does_not_pass(device: _instructions.Device, name: str) -> None:
    def wrong(function: str, arrays: Sequence[NDArray[Any]], *numbers: int) -> list[NDArray[Any]]:
        return [np.roll(array, 1, axis=0) for array in device(function, arrays, *numbers)]

    with pytest.raises(Wrong):
        _instructions.CHECKS[name](wrong)


def test_every_wrapped_instruction_is_checked() -> None:
    source = (ROOT / "tests" / "cuda" / "shim_kernels.cu").read_text()
    header = (ROOT / "cuda" / "device" / "instructions.cuh").read_text()
    names = set(re.findall(r"__forceinline__ [\w ]+?\b(cu_\w+)\(", header))
    assert len(names) > 8
    assert {name for name in names if not re.search(rf"\b{name}\b", source)} == {"cu_shared_address"}  # of the others


# ---- what needs torch ----


@pytest.fixture
def torch(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake_torch.make(shim)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(_benchmarks, "SIDE", 256)
    monkeypatch.setattr(_benchmarks, "SMALL_SIDE", 256)
    monkeypatch.setattr(_benchmarks, "LAYER", (128, 256))
    monkeypatch.setattr(_benchmarks, "ring_size", lambda context, nbytes: 2)
    for name, value in {"EXPERTS": 4, "EXPERT_N": 64, "EXPERT_K": 256, "TOKENS": 16, "PICKS": 2}.items():
        monkeypatch.setattr(_benchmarks, name, value)
    monkeypatch.setattr(_benchmarks, "MANY", (16, 64))
    sizes = {"TOKENS": 8, "WIDTH": 64, "POSITIONS": 64, "CHOSEN": 8, "HEADS": 4, "HEAD": 32, "EXPERTS": 16}
    for name, value in sizes.items():
        monkeypatch.setattr(_operator_speed, name, value)
    monkeypatch.setattr(_ceilings, "SIDE", 64)
    monkeypatch.setattr(_ceilings, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(_timing.Timer, "LEAST", 2)
    monkeypatch.setattr(_timing.Timer, "MOST", 2)
    monkeypatch.setattr(_timing.Timer, "SAMPLE", 1e-3)
    return module


def test_ceilings_and_benchmarks_run_through(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    context = make_context("q4_0", "q8_0")
    lines = results(_ceilings.items(context), context) | results(_benchmarks.items(context), context)
    peers = {"bitsandbytes nf4", "humming int4"}
    states = {name: line["state"] for name, line in lines.items() if name not in peers}
    assert set(states.values()) == {OK}, [line["text"] for line in lines.values()]
    assert list(states) == [
        *("device to device copy", "bf16 matmul (cuBLAS)"),
        *("products q4_0", "moe q4_0", "dequant q4_0", "dequant q8_0"),
        *(f"operator {name}" for name in _operator_speed.cases()),
        *("layer q4_0", "products q8_0"),
    ]
    assert torch.cuda.captures > 10
    rows = [row for line in lines.values() for row in (line.get("data") or {}).get("rows", [])]
    assert [row["m"] for row in rows if row["what"] == "matmul" and row["format"] == "q4_0"] == [
        1,
        2,
        4,
        8,
        16,
        64,
        1,
        8,
        64,
    ]
    assert all(row["captured"] for row in rows)
    assert 2 < rows[0]["budget"] < 4
    assert {row["format"] for row in rows if "times_torch" in row} == set(_operator_speed.PEERS)
    _report._show_operators([row for row in rows if row["what"] == "operator"])
    assert re.search(r"indexer_topk +\d+\.\d +\d+\.\d\d +1\.00\n", capsys.readouterr().out)
    outcome = _sections.Outcome(_sections.SECTIONS[-1], list(lines.values()), 1.0)
    assert outcome.count(NOT_RUN) == 2
    for peer in peers:
        assert "cannot be imported" in lines[peer]["text"]


def test_peers_are_measured_where_they_are(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def multiply(w: Any) -> Callable[[Any], None]:
        out = {m: torch.empty(m, w.shape[0], dtype=torch.bfloat16, device="cuda") for m in (1, 8, 16, 32, 64, 4096)}
        return lambda x: torch.mm(x, w.t(), out=out[x.shape[0]])

    monkeypatch.setattr(_benchmarks, "PEERS", {"peer": lambda torch, w: multiply(w)})
    rows = _benchmarks.peer(make_context("q4_0"), "peer")["rows"]
    assert [row["m"] for row in rows] == [1, 8, 16, 32, 64, 4096]


def test_graphs_are_captured_and_nothing_is_allocated(torch: Any) -> None:
    context = make_context("q4_0")

    def remembering(make: _graphs.Make) -> _graphs.Make:
        def made(torch: Any, fmt: Any) -> Any:
            call, x, out = make(torch, fmt)
            torch.cuda.captured = call
            return call, x, out

        return made

    for make in (_graphs.dequant, _graphs.matmul, _graphs.moe):
        assert _graphs.check(context, context.formats[0], remembering(make))["kernel"]
        torch.cuda.captured = lambda: None
        with pytest.raises(Wrong, match="gave another result"):
            _graphs.check(context, context.formats[0], make)


def test_allocation_in_a_call_is_found(torch: Any) -> None:
    context, kept = make_context("q4_0"), []

    def allocating(torch: Any, fmt: Any) -> Any:
        call, x, out = _graphs.matmul(torch, fmt)
        return lambda: (call(), kept.append(torch.empty(64, device="cuda"))), x, out

    with pytest.raises(Wrong, match="20 calls with out= took memory"):
        _graphs.check(context, context.formats[0], allocating)


def test_calls_that_cannot_be_captured_are_timed_one_by_one(torch: Any) -> None:
    w = cuda.load(cbquant.QuantTensor(bytes(34), "q8_0", (1, 32)))
    time = _timing.Timer(torch).measure([lambda: w.dequant("float32")])  # it allocates its result
    assert not time.captured


def test_without_torch_it_says_so(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    context = make_context("q4_0")
    lines = results(_ceilings.items(context), context) | results(_graphs.items(context), context)
    assert {line["state"] for line in lines.values()} == {NOT_RUN}
    assert all("torch cannot be imported" in line["text"] for line in lines.values())
    with pytest.raises(_items.NotRun, match="torch cannot be imported"):
        next(_benchmarks.items(context))
