"""Products with planes, next to those with blocks of the same width and to sgemm with decoded weights: section E."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.matmul import dense
from benchmarks.matmul.weights import TOLERANCES, Dense, Operand, Packed, aligned, own_operand, rows_of_x
from benchmarks.plan import Done
from benchmarks.planes import targets
from benchmarks.planes.cases import Case, Stored, cases
from benchmarks.planes.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call, Timing, measure, ratio
from benchmarks.words import threads_word
from cbquant import _formats

#: Blocks that are as wide, where they do not have the name of the planes: by the bits of codes in memory, and with
#: scales for 64 elements nvfp4's 4.5 bits.
_SAME_WIDTH = {"mxfp4_planes": "mxfp4", "nvfp4_planes": "nvfp4", "nf4": "nvfp4", "fp4": "nvfp4"}
_PACKED, _BYTES = "q6_k", "q8_0"
# What benchmarks.matmul.dense calls it.
_SGEMM = "sgemm"


def blocks_for(case: Case) -> str:
    """The name of the blocks that a case is compared with.

    >>> from cbquant.planes import formats
    >>> {blocks_for(case) for case in cases(formats()) if case.fmt.bits == 8}
    {'q8_0'}
    """
    return _SAME_WIDTH.get(case.fmt.name, _PACKED if case.packed else _BYTES)


def modes_of(case: Case) -> tuple[str, ...]:
    """The precisions to multiply in."""
    return ("f32", "bf16", "q8") if case.fmt.integer else ("f32", "bf16")


def next_to_blocks(plan: Plan, done: Done) -> list[Row]:
    """Rows for each case, number of rows of x and precision: times the speed of blocks, and of sgemm."""
    rows: list[Row] = []
    blocks: dict[str, Packed] = {}
    with ExitStack() as stack:
        sgemm = dense.load(Dense(*plan.shape), stack)
        for case in cases(plan.formats):
            name = blocks_for(case)
            if name not in blocks:
                blocks = {name: Packed(_formats.get(name), *plan.shape)}  # one at a time: copies are a gigabyte
            rows += _one_case(case, blocks[name], sgemm, plan, done)
    return sorted(rows, key=lambda row: str(row["group"]))


def _one_case(case: Case, blocks: Packed, sgemm: list[Operand], plan: Plan, done: Done) -> list[Row]:
    stored = Stored(case, *plan.shape)
    operands = {("planes", mode): own_operand(stored, mode) for mode in modes_of(case)}
    check_products(case, stored, operands, max(plan.threads))
    operands |= {("blocks", mode): own_operand(blocks, mode) for mode in modes_of(case)}
    operands |= {(operand.name, "f32"): operand for operand in sgemm}
    rows = []
    for m in plan.ms:
        timings = _timed(operands, m, plan)
        for mode in modes_of(case):
            rows += compared(case, blocks.fmt.name, m, mode, max(plan.threads), timings)
        done(f"{case.name} M={m}")
    return rows


def _timed(operands: dict[tuple[str, str], Operand], m: int, plan: Plan) -> dict[tuple[str, str], Timing]:
    """All in the same rounds, with the largest number of threads."""
    n, k = plan.shape
    x, out, is_short = rows_of_x(m, k), aligned(m, n), m <= plan.cold_m
    candidates: dict[tuple[str, str], list[Call]] = {
        key: [operand.call(x, out, max(plan.threads), is_short)] for key, operand in operands.items()
    }
    seconds = plan.sample_seconds if is_short else 0.0
    return measure(candidates, plan.at_most(plan.product_rounds), seconds, quiet=True)


def check_products(case: Case, stored: Stored, operands: dict[tuple[str, str], Operand], threads: int) -> None:
    """A RuntimeError where a product is not near what it should be."""
    x, out = rows_of_x(4, stored.k), aligned(4, stored.n)
    expected = x @ stored.floats.T
    for (_, mode), operand in operands.items():
        error = operand.error(x, out, threads, expected)
        if not error <= TOLERANCES[mode]:
            raise RuntimeError(f"{case.name}, {mode}: the product of cbquant is wrong by {error:.1e}")


def compared(
    case: Case, blocks: str, m: int, mode: str, threads: int, timings: dict[tuple[str, str], Timing]
) -> list[Row]:
    """Two rows of one product: the ratio to blocks in the same precision, and to sgemm."""
    own = timings["planes", mode]
    base: Row = {"format": case.name, "variant": f"M = {m}", "mode": mode, "threads": threads, "seconds": own.seconds}
    base |= {"spread": own.spread, "blocks": blocks}
    against = {f"of blocks, {mode}, {threads_word(threads)}": ("blocks", mode)}
    against |= {f"of sgemm, {mode}, {threads_word(threads)}": (_SGEMM, "f32")} if (_SGEMM, "f32") in timings else {}
    rows = []
    for group, key in against.items():
        times = ratio(timings[key], own)
        target = targets.of_blocks(case.fmt.name, blocks, mode) if key[0] == "blocks" else None
        found = {"group": group, "peer_seconds": timings[key].seconds, "figure": times}
        rows.append(base | found | {"judged": judge(times, ">=", target)})
    return rows


def notes() -> list[str]:
    """What was left out."""
    return [] if dense.thread_setter() else ["no sgemm: NumPy's BLAS has no number of threads to set"]
