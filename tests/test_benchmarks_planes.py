"""The benchmark of codecs and planes: what is measured computes the same everywhere, and its arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cbquant
from benchmarks import ceilings, groups, report
from benchmarks.dequant import memory as dequant_memory
from benchmarks.matmul.weights import own_operand
from benchmarks.planes import (
    codecs,
    encode,
    memory,
    numpy_encoders,
    optional,
    peers,
    plan,
    products,
)
from benchmarks.planes.cases import Stored, cases
from benchmarks.planes.plan import Plan
from benchmarks.timing import Timing
from cbquant import planes

CASES = cases(planes.formats())
TINY = Plan(
    formats=tuple(planes.formats()),
    rounds=2,
    sample_seconds=0,
    shape=(128, 256),
    large=(256, 256),
    peer_shapes=((64, 256), (128, 256)),
    elements=1024,
    ms=(1, 5),
    cold_m=1,
    rows=128,
)
by_name = {case.name: case for case in CASES}
all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
all_kinds = pytest.mark.parametrize("kind", codecs.KINDS)


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """A last cache that copies of tiny planes exceed."""
    monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda: 100_000)


# --- planes ------------------------------------------------------------------------------------------------


def test_every_format_is_a_case_and_codes_of_6_bits_are_two():
    assert {case.fmt for case in CASES} == {*planes.formats()}
    assert [case.name for case in CASES if case.packed] == ["mxfp6_e3m2, packed", "mxfp6_e2m3, packed"]


@all_cases
@pytest.mark.parametrize("n", [128, 512])
def test_planes_are_those_of_normal_numbers_in_several_copies(case, n):
    stored = Stored(case, n, 256)
    assert stored.cold.are_cold
    assert len(stored.copies) == len(stored.cold.copies) == 200_000 // stored.cold.nbytes + 1
    x = np.random.default_rng([n, 256]).standard_normal((min(n, 256), 256), np.float32)
    x = np.concatenate([x] * (n // len(x)))
    assert np.linalg.norm(stored.floats - x) < 0.15 * np.linalg.norm(x)
    for (codes, scales), tensor in zip(stored.copies, stored.tensors, strict=True):
        assert (codes.ctypes.data % 64, scales.ctypes.data % 64) == (0, 0)
        assert codes.nbytes + scales.nbytes <= stored.cold.nbytes < codes.nbytes + scales.nbytes + 64
        assert np.array_equal(tensor.dequant(), stored.floats)


@all_cases
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_decoding_fills_the_whole_array_from_each_copy_in_turns(case, dtype):
    stored = Stored(case, 128, 256)
    expected = stored.tensors[0].dequant(dtype).view("uint32" if dtype == "float32" else "uint16")
    stored.copies[1][0][...] = 0
    for number in range(2):
        out = np.full(128 * 256, 77, "uint16" if dtype == "bfloat16" else dtype)
        stored.decode(out, dtype, 2)
        same = np.array_equal(out.view(expected.dtype).reshape(128, 256), expected)
        assert same == (number == 0)


def test_a_matrix_past_the_last_cache(monkeypatch):
    for cache, rows in ((0, 8192), (64 << 20, 8192), (128 << 20, 16384), (384 << 20, 32768), (9 << 30, 65536)):
        monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda cache=cache: cache)
        assert plan.past_the_last_cache() == (rows, 4096)
    usual = plan.usual()
    assert usual.formats == tuple(planes.formats())
    assert usual.large == (65536, 4096)


# --- memory ------------------------------------------------------------------------------------------------


def fixed_times(seconds):
    """`measure`, with the time of a candidate by the last word of its key."""

    def measure(candidates, rounds, sample_seconds=0.0, quiet=False):
        for calls in candidates.values():
            for call in calls:
                call()
        return {key: Timing(seconds(key), 0.0) for key in candidates}

    return measure


def test_decoding_is_judged_by_the_fastest_fill_where_memory_delivers_the_codes_too(monkeypatch):
    def seconds(key):
        threads, kind = key
        return {dequant_memory.OWN: 2.0, "memset": 1.0}.get(kind, 3.0) / threads

    monkeypatch.setattr(dequant_memory, "measure", fixed_times(seconds))
    tiny = replace(TINY, formats=(by_name["mxint8"].fmt,))
    small, small_two, large, large_two = memory.to_memory(tiny, lambda name: None)
    read = 1 + 1 / 32  # bytes of an element: a code and its part of a scale
    for row in (small, small_two, large, large_two):
        assert (row["ceiling"], row["of_ceiling"], row["blocks_from_memory"]) == ("memset", 0.5, True)
        assert row["figure"] == row["of_scaled_ceiling"] == pytest.approx(0.5 * (4 + read) / 4)
    assert [row["judged"] and row["judged"]["target"] for row in (small, small_two)] == [None, 0.85]
    assert (small["group"], large["group"]) == ("128x256, 128 KiB", "256x256, 256 KiB")
    assert (small["variant"], small_two["variant"]) == ("1 thread", "2 threads")
    halves = memory.to_memory_16bit(tiny, lambda name: None)
    assert [(row["variant"], row["group"]) for row in halves] == [
        (dtype, "128x256, 64 KiB, 2 threads") for dtype in ("float16", "bfloat16")
    ]
    assert halves[0]["figure"] == pytest.approx(0.5 / ceilings.scale(2, read))
    assert all(row["judged"] is None for row in halves)


# --- codecs ------------------------------------------------------------------------------------------------


@all_kinds
def test_codecs_and_peers_convert_the_same(kind):
    data = codecs.arrays(kind, 5000)
    assert np.unique(data.codes).size > 0.9 * (1 << codecs.KINDS[kind].bits) - 3
    own = codecs.own_calls(kind, data)
    found = codecs.numpy_calls(kind, data) if kind == "mxint8" else codecs.ml_dtypes_calls(kind, data)
    for work in (codecs.DECODE, codecs.ENCODE):
        codecs.check_same(kind, work, data, own[work], found[work], "a peer")
        own[work]()
        out = data.decoded if work == codecs.DECODE else data.encoded
        assert not np.isnan(out).any()
        with pytest.raises(RuntimeError, match=rf"{kind}: a peer and cbquant {work} to different values"):
            codecs.check_same(kind, work, data, own[work], lambda: None, "a peer")


def test_a_kind_that_ml_dtypes_lacks_has_no_peer(monkeypatch):
    import ml_dtypes

    monkeypatch.delattr(ml_dtypes, "float6_e2m3fn")
    assert codecs.ml_dtypes_calls("e2m3", codecs.arrays("e2m3", 64)) == {}


def test_torch_converts_the_same():
    pytest.importorskip("torch")
    for kind in cbquant.fp8.KINDS:
        data = codecs.arrays(kind, 5000)
        own, found = codecs.own_calls(kind, data), codecs.torch_calls(kind, data)
        for work in own:
            codecs.check_same(kind, work, data, own[work], found[work], "torch")


def test_codecs_are_judged_next_to_ml_dtypes(monkeypatch):
    seconds = {"cbquant": 1e-6, "ml_dtypes": 8e-6, "NumPy": 2e-6}
    monkeypatch.setattr(codecs, "measure", fixed_times(seconds.__getitem__))
    monkeypatch.setattr(optional, "versions", lambda: {"ml_dtypes": "1"})
    rows = codecs.next_to_peers(TINY, lambda name: None)
    figures = {(row["format"], row["group"], row["variant"]): row for row in rows}
    assert len(figures) == len(rows)
    assert {row["group"] for row in rows} == {"decode, 1 thread", "encode, 1 thread"}
    for work in ("decode, 1 thread", "encode, 1 thread"):
        assert figures["e2m1", work, "M elements/s"]["figure"] == pytest.approx(1024)
        row = figures["e2m1", work, "ml_dtypes"]
        assert (row["figure"], row["judged"]["target"], row["judged"]["held"]) == (pytest.approx(8), 10, False)
        row = figures["mxint8", work, "NumPy"]
        assert (row["figure"], row["judged"]) == (pytest.approx(2), None)
        row = figures["e5m2", work, "torch"]
        assert (row["figure"], row["absent"], row["judged"]) == (None, "not installed", None)
        assert ("e2m1", work, "torch") not in figures
    assert figures["e8m0", "encode, 1 thread", "ml_dtypes"]["judged"] is None


# --- other libraries ---------------------------------------------------------------------------------------


class Tensor:
    """As much of torch's as is used."""

    def __init__(self, values):
        self.values = values

    def float(self):
        return self

    def numpy(self):
        return self.values


def test_planes_are_judged_next_to_other_libraries(monkeypatch):
    def bitsandbytes_call(stored, dtype):
        return lambda: Tensor(stored.floats)

    def torch_call(stored, dtype):
        codes = stored.copies[0][0]
        return lambda: Tensor(cbquant.fp8.decode(codes, stored.case.fmt.code))

    found = {"bitsandbytes": (bitsandbytes_call, ("nf4", "fp4")), "torch": (torch_call, ("fp8_e4m3", "fp8_e5m2"))}
    monkeypatch.setattr(peers, "PEERS", found)
    monkeypatch.setattr(
        peers, "measure", fixed_times({"cbquant": 1.0, "bitsandbytes": 2.0, "torch": 4.0, "fill": 0.5}.get)
    )
    monkeypatch.setattr(optional, "versions", lambda: dict.fromkeys(found, "1"))
    rows = peers.next_to_peers(TINY, lambda name: None)
    assert [(row["format"], row["group"], row["variant"]) for row in rows] == [
        (fmt, f"{peer}, {shape}, 1 thread", dtype)
        for peer, formats in (("torch", ("fp8_e4m3", "fp8_e5m2")), ("bitsandbytes", ("nf4", "fp4")))
        for fmt in formats
        for shape in ("64x256", "128x256")
        for dtype in ("float32", "fill, float32", "bfloat16", "fill, bfloat16")
    ]
    assert [(row["figure"], row["judged"]) for row in rows[1::2]] == [(8, None)] * 8 + [(4, None)] * 8
    for row in rows[::2]:
        figure, target = {"bitsandbytes": (2, 3), "torch": (4, 1)}[row["peer"]]
        verdict = row["judged"]
        assert (row["figure"], verdict["target"], verdict["held"]) == (figure, target, figure >= target)


@pytest.mark.parametrize("name", ["nf4", "fp8_e4m3"])
def test_other_numbers_than_those_of_a_peer_end_the_run(name):
    stored = Stored(by_name[name], 128, 256)
    with pytest.raises(RuntimeError, match=f"{name}: a peer and cbquant decode the same codes to different values"):
        peers.check_same(stored, stored.floats, Tensor(stored.floats + 1), "a peer")


def test_torch_and_bitsandbytes_decode_the_same():
    pytest.importorskip("torch")
    pytest.importorskip("bitsandbytes")
    for prepare, formats in peers.PEERS.values():
        for name in formats:
            stored = Stored(by_name[name], 128, 256)
            for dtype in peers.DTYPES:
                peers.check_same(stored, peers.own_call(stored, dtype)(), prepare(stored, dtype)(), "it")


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(optional, "distribution_version", lambda name: "1" if name == "ml_dtypes" else None)
    assert optional.versions() == {"ml_dtypes": "1"}
    assert optional.notes() == ["no torch: pip install torch", "no bitsandbytes: pip install torch bitsandbytes"]
    rows = peers.next_to_peers(TINY, lambda name: None)
    assert len(rows) == 4 * 2 * 2
    assert all((row["figure"], row["judged"]) == (None, None) for row in rows)
    shown = {"D": groups.Section("Title", "Note.")}
    table = groups.group_tables({"sections": {"D": rows}}, shown)[0]
    assert table.rows[0] == ["fp8_e4m3", "not installed", "not installed"]
    assert report.summarize({"D": rows}) == {"held": 0, "judged": 0, "misses": []}


# --- products ----------------------------------------------------------------------------------------------


def test_what_products_are_compared_with():
    partner = {case.name: products.blocks_for(case) for case in CASES}
    assert partner.pop("mxfp4_planes") == "mxfp4"
    assert {partner.pop(name) for name in ("nvfp4_planes", "nf4", "fp4")} == {"nvfp4"}
    assert {partner.pop(case.name) for case in CASES if case.packed} == {"q6_k"}
    assert {*partner.values()} == {"q8_0"}
    assert [case.name for case in CASES if "q8" in products.modes_of(case)] == [
        "mxfp4_planes",
        "nvfp4_planes",
        "mxint8",
    ]


@all_cases
def test_products_are_right_and_wrong_ones_end_the_run(case):
    stored = Stored(case, 128, 256)
    operands = {("planes", mode): own_operand(stored, mode) for mode in products.modes_of(case)}
    products.check_products(case, stored, operands, 2)
    wrong = replace(operands["planes", "f32"], calls=lambda x, out, threads: [lambda: out.fill(1)])
    with pytest.raises(RuntimeError, match=rf"{case.name}, f32: the product of cbquant is wrong by"):
        products.check_products(case, stored, {("planes", "f32"): wrong}, 2)


def test_products_are_compared_in_the_same_precision():
    seconds = {("planes", "f32"): 2.0, ("planes", "q8"): 1.0, ("blocks", "f32"): 3.0, ("blocks", "q8"): 0.5}
    timings = {key: Timing(value, 0.0) for key, value in (seconds | {("sgemm", "f32"): 8.0}).items()}
    found = {}
    for mode in ("f32", "q8"):
        for row in products.compared(by_name["mxfp4_planes"], "mxfp4", 4, mode, 2, timings):
            assert (row["format"], row["variant"]) == ("mxfp4_planes", "M = 4")
            found[row["group"]] = (row["figure"], row["judged"] and row["judged"]["held"])
    assert found == {
        "of blocks, f32, 2 threads": (1.5, True),
        "of sgemm, f32, 2 threads": (4.0, None),
        "of blocks, q8, 2 threads": (0.5, False),
        "of sgemm, q8, 2 threads": (8.0, None),
    }
    del timings["sgemm", "f32"]
    (row,) = products.compared(by_name["nf4"], "nvfp4", 4, "f32", 2, timings)
    assert (row["figure"], row["judged"]) == (1.5, None)


# --- encoding ----------------------------------------------------------------------------------------------


@all_cases
def test_numpy_encodes_the_same(case, monkeypatch):
    x = np.random.default_rng(1).standard_normal((256, 256), np.float32)
    encode.check_same(case, x)
    codes, scales = numpy_encoders.encode(case, x)
    assert codes.nbytes + scales.nbytes < x.nbytes / 3
    for wrong in ((codes ^ 1, scales), (codes, scales + scales.dtype.type(1))):
        monkeypatch.setattr(numpy_encoders, "encode", lambda *args, wrong=wrong: wrong)
        with pytest.raises(RuntimeError, match=f"{case.name}: NumPy and cbquant encode the same numbers to different"):
            encode.check_same(case, x)


def test_encoding_is_compared_with_one_thread(monkeypatch):
    monkeypatch.setattr(encode, "measure", fixed_times({"1 thread": 2.0, "2 threads": 1.0, "NumPy": 9.0}.get))
    rows = encode.measured(replace(TINY, formats=(by_name["nf4"].fmt,)), lambda name: None)
    (row,) = encode.against_numpy(rows)
    assert (row["format"], row["variant"], row["figure"]) == ("nf4", "times NumPy", 4.5)
    speeds = {row["variant"]: row["figure"] for row in encode.speeds(rows)}
    elements = 128 * 256 / 1e6
    assert speeds == {"1 thread": elements / 2, "2 threads": elements, "NumPy": pytest.approx(elements / 9)}
    monkeypatch.setattr(optional, "versions", dict)
    rows = encode.measured(replace(TINY, formats=(by_name["nf4"].fmt,)), lambda name: None)
    (row,) = encode.against_numpy(rows)
    assert (row["figure"], row["absent"]) == (None, "not installed")
    assert {row["variant"] for row in encode.speeds(rows)} == {"1 thread", "2 threads"}
