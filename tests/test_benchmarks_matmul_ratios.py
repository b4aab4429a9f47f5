"""The benchmark of products: what it makes of the times that it has measured."""

from __future__ import annotations

import itertools

import pytest

import cbquant
from benchmarks.matmul import plan, ratios, targets


def product(fmt="q4_0", m=1, mode="q8", threads=2, seconds=1.0, **others):
    given = {
        "format": fmt,
        "shape": "64x512",
        "m": m,
        "mode": mode,
        "threads": threads,
        "seconds": seconds,
        "operations": 2 * m * 64 * 512,
        "stored_bytes": 1000,
        "weights_from_memory": True,
        "peer_seconds": {},
        "limits": {"read": {}, "integers": {}, "floats": {}},
    }
    return given | others


def found(products, letter, level="avx2"):
    rows = ratios.sections(products, level)[letter]
    return {(row["format"], row["group"], row["variant"]): row for row in rows}


def verdict(row):
    return row["judged"] and (row["judged"]["target"], row["judged"]["held"])


def test_the_best_of_ggml_that_counts_is_compared_with():
    seconds = {"ggml plain": 3.0, "ggml repacked": 2.0, "llama.cpp plain": 4.0, "llama.cpp AMX": 0.5}
    rows = found([product(m=m, peer_seconds={"ggml": seconds}) for m in (1, 2)], "B")
    group = "q8, 2 threads, 64x512"
    assert rows["q4_0", group, "M=1"]["figure"] == 2.0
    assert rows["q4_0", group, "M=1"]["peer"] == "ggml repacked"
    assert verdict(rows["q4_0", group, "M=1"]) == (1.0, True)
    other = rows["q4_0", f"{group}, against llama.cpp AMX", "M=1"]
    assert (other["figure"], other["judged"]) == (0.5, None)
    assert verdict(rows[None, group, ratios.ALL]) == (2.5, False)
    assert rows[None, group, "M=2"]["judged"] is None


def test_the_mean_against_ggml_is_geometric_over_formats_and_rows():
    seconds = {("q4_0", 1): 1.0, ("q4_0", 2): 4.0, ("q8_0", 1): 16.0}
    products = [product(fmt, m, peer_seconds={"ggml": {"ggml plain": s}}) for (fmt, m), s in seconds.items()]
    rows = found(products, "B")
    mean = rows[None, "q8, 2 threads, 64x512", ratios.ALL]
    assert (mean["figure"], mean["formats"]) == (pytest.approx(4.0), 3)
    assert rows[None, "q8, 2 threads, 64x512", "M=1"]["figure"] == pytest.approx(4.0)


def test_decoded_weights_are_compared_with_one_by_one():
    peer_seconds = {"numpy": {"sgemm": 2.0}, "torch": {"torch f32": 3.0}}
    rows = found([product(mode="f32", m=16, peer_seconds=peer_seconds)], "C")
    sgemm = rows["q4_0", "f32, 2 threads, 64x512, against sgemm", "M=16"]
    assert (sgemm["figure"], verdict(sgemm)) == (2.0, (1.8, True))
    linear = rows["q4_0", "f32, 2 threads, 64x512, against torch f32", "M=16"]
    assert (linear["figure"], linear["judged"]) == (3.0, None)


def test_bandwidth_counts_where_weights_come_from_memory():
    limits = {"read": {"0 ahead": 1000.0, "2048 ahead": 2000.0}, "integers": {}, "floats": {}}
    cold, warm = product(limits=limits), product(limits=limits, weights_from_memory=False)
    key = ("q4_0", "64x512", "q8, 2 threads")
    assert found([cold], "D")[key]["figure"] == 0.5
    assert verdict(found([cold], "D")[key]) == (0.75, False)
    assert found([warm], "D")[key]["judged"] is None
    assert found([product(m=2, limits=limits)], "D") == {}


def test_more_threads_are_compared_with_one():
    products = [product(threads=1, seconds=3.4), product(threads=2, seconds=2.0), product(m=2, threads=1)]
    rows = found(products, "E")
    assert rows.keys() == {("q4_0", "64x512", "q8, 2 threads")}
    assert verdict(rows["q4_0", "64x512", "q8, 2 threads"]) == (1.7, True)
    assert found(products[1:], "E") == {}


def test_products_of_integers_are_parts_of_the_best_way_to_multiply_them():
    one = product(m=64, threads=1)
    rate = one["operations"]
    limits = {"read": {}, "integers": {"nibbles": rate, "dot": 2.0 * rate}, "floats": {"fma": 4.0 * rate}}
    key = ("q4_0", "q8, 1 thread, 64x512", "M=64")
    assert found([one | {"limits": limits}], "F")[key]["figure"] == pytest.approx(0.5)
    assert verdict(found([one | {"limits": limits}], "F")[key]) == (0.7, False)
    assert found([one | {"limits": limits}], "F", level="avx512vnni")[key]["judged"] is None
    floats = found([one | {"limits": limits, "mode": "f32"}], "F")
    assert [row["figure"] for row in floats.values()] == [pytest.approx(0.25)]
    assert found([one | {"limits": limits, "mode": "q16"}], "F") == {}


def test_the_worst_step_is_judged():
    # 2, 4 and 3 times the speed of one row
    products = [product(m=m, seconds=s) for m, s in ((4, 4 / 3), (1, 1.0), (2, 0.5))]
    (row,) = found(products, "G").values()
    assert (row["figure"], row["at"]) == (pytest.approx(0.75), "M=4")
    assert verdict(row) == (0.9, False)
    assert found(products[:1], "G") == {}


def test_speed_is_in_operations_and_judged_on_one_core_with_avx2():
    key = ("q4_0", "q8, 1 thread, 64x512", "M=1")
    row = found([product(threads=1, seconds=1e-6)], "A")[key]
    assert row["figure"] == pytest.approx(2 * 64 * 512 / 1e-6 / 1e9)
    assert verdict(row) == (79.0, False)
    assert found([product(threads=1)], "A", level="avxvnni")[key]["judged"] is None


def test_targets_are_of_formats_that_exist():
    names = {f.name for f in cbquant.formats()}
    assert names >= targets.PEAK.keys() | targets.KNOWN.keys() | targets.BANDWIDTH.keys() | set(targets._GRIDS)
    grids = {name for name in names if targets.against_ggml(name, 1, "q8", 2) == targets.GGML_GRIDS}
    assert grids == {name for name in names if name.startswith(("iq1", "iq2", "iq3"))}


def test_only_what_was_promised_is_judged():
    for mode, threads in itertools.product(plan.MODES, (1, 2)):
        judged = targets.against_ggml("q4_0", 4, mode, threads) is not None
        assert judged == (mode == "q8" and threads == 2)
        assert (targets.against_sgemm(64, mode, threads) is not None) == (mode == "f32" and threads == 2)
        assert (targets.of_peak("q4_0", mode, threads, "avx2") is not None) == (mode == "q8" and threads == 1)
