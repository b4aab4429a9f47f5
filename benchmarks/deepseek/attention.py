"""Attention and the indexer next to what the machine can do at most: reading memory and multiplying floats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

import cbquant
from benchmarks.ceilings import Crew
from benchmarks.deepseek import targets
from benchmarks.deepseek.cases import Array, draw, room
from benchmarks.deepseek.plan import DTYPES, Plan
from benchmarks.peaks import FLOATS, Memory, arithmetic
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure
from benchmarks.words import threads_word
from cbquant import deepseek


class Work(NamedTuple):
    """One operator on arrays that it is given, and what it has to do at least."""

    operator: str
    own: Callable[[int], Call]
    #: Bytes of the cache that have to be read, and multiplications and additions.
    read: int
    operations: float


Maker = Callable[[Plan, str], Work]


def _attention(name: str, heads: int, groups: int, width: int, same: bool, plan: Plan, dtype: str) -> Work:
    k = draw((groups, plan.positions, width), dtype)
    v = k if same else draw((groups, plan.positions, width), dtype, 1)
    q, sink, out = draw((heads, width), dtype, 2), draw((heads,), "float32", 3), room((heads, width), dtype)

    def own(threads: int) -> Call:
        return partial(deepseek.sdpa_decode_sink, q, k, v, sink, out=out, threads=threads)

    shape = f"{heads} heads on {groups}, D = {width}"
    read = k.nbytes if same else k.nbytes + v.nbytes
    return Work(f"sdpa_decode_sink, {name}: {shape}", own, read, 4.0 * heads * plan.positions * width)


def shared_cache(plan: Plan, dtype: str) -> Work:
    """V4's own: all heads on one cache, whose keys are its values."""
    return _attention("k is v", 64, 1, plan.head, True, plan, dtype)


def grouped_heads(plan: Plan, dtype: str) -> Work:
    return _attention("k, v", 64, 8, 128, False, plan, dtype)


def own_caches(plan: Plan, dtype: str) -> Work:
    return _attention("k, v", 8, 8, 128, False, plan, dtype)


def sparse_sdpa_decode(plan: Plan, dtype: str, chosen: int = 2048) -> Work:
    """A list of positions of a long cache, those of the indexer and the last ones."""
    cache, q = draw((1, plan.positions, plan.head), dtype), draw((64, plan.head), dtype, 1)
    topk = np.random.default_rng(0).permutation(plan.positions)[:chosen]
    indices = deepseek.gather_list(topk, plan.positions)
    out = room(q.shape, dtype)

    def own(threads: int) -> Call:
        return partial(deepseek.sparse_sdpa_decode, q, cache, cache, indices, out=out, threads=threads)

    read = len(indices) * cache.itemsize * plan.head
    return Work(f"sparse_sdpa_decode, {len(indices)} positions", own, read, 4.0 * 64 * len(indices) * plan.head)


def mla_decode(plan: Plan, dtype: str, d: int = 128, rope: int = 64) -> Work:
    ckv, k_rope = draw((plan.positions, plan.head), dtype), draw((plan.positions, rope), dtype, 1)
    w_uk, q_nope, q_rope = draw((64, d, plan.head), dtype, 2), draw((64, d), dtype, 3), draw((64, rope), dtype, 4)
    out = room((64, plan.head), dtype)

    def own(threads: int) -> Call:
        return partial(deepseek.mla_decode, q_nope, q_rope, w_uk, ckv, k_rope, out=out, threads=threads)

    products = 64.0 * (plan.positions * (2 * plan.head + rope) + d * plan.head)
    return Work("mla_decode", own, ckv.nbytes + k_rope.nbytes + w_uk.nbytes, 2 * products)


def _index_arrays(plan: Plan, dtype: str) -> tuple[Array, Array, Array]:
    return draw((64, 128), dtype), draw((plan.positions, 128), dtype, 1), draw((64,), dtype, 2)


def indexer_score(plan: Plan, dtype: str) -> Work:
    q, k, w = _index_arrays(plan, dtype)
    out = room((plan.positions,), "float32")

    def own(threads: int) -> Call:
        return partial(deepseek.indexer_score, q, k, w, out=out, threads=threads)

    return Work("indexer_score", own, k.nbytes, 2.0 * 64 * k.size)


def indexer_select(plan: Plan, dtype: str) -> Work:
    q, k, w = _index_arrays(plan, dtype)
    out = room((min(512, plan.positions),), "int32")

    def own(threads: int) -> Call:
        return partial(deepseek.indexer_select, q, k, w, out.size, out=out, threads=threads)

    return Work("indexer_select", own, k.nbytes, 2.0 * 64 * k.size)


MAKERS: tuple[Maker, ...] = (
    shared_cache,
    grouped_heads,
    own_caches,
    sparse_sdpa_decode,
    mla_decode,
    indexer_score,
    indexer_select,
)


def chosen(operators: tuple[str, ...]) -> list[Maker]:
    """Those of the operators that a plan names; all where it names none.

    >>> [maker.__name__ for maker in chosen(("mla_decode",))]
    ['mla_decode']
    """
    attention = (shared_cache, grouped_heads, own_caches)
    names = {maker: "sdpa_decode_sink" if maker in attention else maker.__name__ for maker in MAKERS}
    return [maker for maker in MAKERS if not operators or names[maker] in operators]


def next_to_limits(plan: Plan, done: Done) -> list[Row]:
    """A row for each case, dtype and number of threads."""
    memory, level = Memory(), cbquant.info()["isa"]
    crews = [Crew(count) for count in plan.threads]
    rows: list[Row] = []
    for maker in chosen(plan.operators):
        for dtype in DTYPES:
            work = maker(plan, dtype)
            for crew in crews:
                ways = {("read", key): peak for key, peak in memory.reads(crew).items()}
                ways |= {("multiply", key): peak for key, peak in arithmetic(FLOATS, level, crew).items()}
                candidates: dict[tuple[str, str], list[Call]] = {("own", ""): [work.own(crew.threads)]}
                candidates |= {key: [peak.call] for key, peak in ways.items()}
                timings = measure(candidates, plan.rounds, plan.sample_seconds, quiet=True)
                speeds = {"read": 0.0, "multiply": 0.0}
                for (kind, key), peak in ways.items():
                    speeds[kind] = max(speeds[kind], peak.work / timings[kind, key].seconds)
                rows.append(_row(work, dtype, crew.threads, timings["own", ""].seconds, **speeds))
        done(maker.__name__)
    return rows


def _row(work: Work, dtype: str, threads: int, seconds: float, read: float, multiply: float) -> Row:
    figure = promised_seconds(work, read, multiply) / seconds
    return {
        "format": work.operator,
        "group": dtype,
        "variant": threads_word(threads),
        "threads": threads,
        "seconds": seconds,
        "bytes_a_second": work.read / seconds,
        "operations_a_second": work.operations / seconds,
        "reading": read,
        "multiplying": multiply,
        "of_reading": work.read / seconds / read if read else 0.0,
        "of_multiplying": work.operations / seconds / multiply if multiply else 0.0,
        "figure": figure,
        "judged": judge(figure, ">=", targets.of_limits(work.operator) if read and multiply else None),
    }


def promised_seconds(work: Work, read: float, multiply: float) -> float:
    """How long a case may take: its bytes at the promised part of reading, or its operations at that of multiplying,
    whichever takes longer.

    >>> work = Work("mla_decode", lambda threads: print, 800, 600.0)
    >>> promised_seconds(work, 100.0, 1000.0), promised_seconds(work, 1000.0, 100.0)
    (10.0, 10.0)
    """
    reading = work.read / (targets.OF_READING * read) if read else 0.0
    return max(reading, work.operations / (targets.OF_MULTIPLYING * multiply) if multiply else 0.0)
