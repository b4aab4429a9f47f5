"""What ptxas made of the kernels: no spilled register, bytes moved 16 at a time, tensor cores, and no more of anything
than ceilings.json says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cbquant
from cbquant.cuda._layouts import INSTRUCTIONS
from tests.cuda import ceilings
from tests.cuda.ceilings import beyond_limits, beyond_table, compare
from tests.cuda.disassembly import Usage, usage, why_not
from tests.cuda.ptx_modules import ARCHITECTURES, kernels_ptx
from tests.ptx.nvcc import find_nvcc, make_cubin, nvcc_release

with_tools = pytest.mark.skipif(
    find_nvcc() is None or why_not() is not None, reason=str(why_not() or "nvcc not found: nothing is compiled")
)


# ---- the kernels ----


@with_tools
def test_kernels_stay_below_their_ceilings() -> None:
    kernels = ceilings.measure()
    assert all(len(of_arch) > 100 for of_arch in kernels.values())
    assert compare(kernels, ceilings.read(), nvcc_release()) == []


@with_tools
def test_operators_keep_to_the_hard_limits() -> None:
    kernels = ceilings.measure("operators")
    assert all(len(of_arch) > 20 for of_arch in kernels.values())
    assert [
        line for of_arch in kernels.values() for name, u in of_arch.items() for line in beyond_limits(name, u)
    ] == []


def test_table_is_within_the_hard_limits() -> None:
    table = ceilings.read()
    lines = [line for a in ARCHITECTURES for name, row in table[a].items() for line in beyond_limits(name, Usage(*row))]
    assert lines == []


def test_decoding_hides_behind_tensor_cores_from_some_rows_on() -> None:
    """rows / 16 instructions a weight: 4 for 64 rows, and the loop of 64 rows has its loads of x in it."""
    table = ceilings.read()
    for arch in ARCHITECTURES:
        few, many = (f"cbq_matmul_q4_0_bf16_{tokens}" for tokens in (8, 64))
        assert 2 < ceilings.per_weight(few, Usage(*table[arch][few])) < 5
        assert 5 < ceilings.per_weight(many, Usage(*table[arch][many])) < 10


@pytest.mark.parametrize("fmt", INSTRUCTIONS)
def test_fragments_cost_what_the_choice_of_layouts_says(fmt: str) -> None:
    """Where a block has 256 elements, its scales are decoded outside of the loop: less than an instruction a weight."""
    blocks, fragments = INSTRUCTIONS[fmt]
    of_blocks, of_fragments = (
        ceilings.per_weight(name, Usage(*ceilings.read()["sm_80"][name]))
        for name in (f"cbq_matmul_{fmt}_bf16_8", f"cbq_matmul_{fmt}_fragments_bf16_8")
    )
    scales = 0.5 if cbquant._formats.get(fmt).elements == 256 else 0
    assert abs(of_blocks - blocks) < 0.1
    assert of_fragments - 0.1 < fragments < of_fragments + 0.1 + scales
    assert fragments < min(blocks, 4.5)


# ---- what is read from machine code ----


@pytest.fixture(scope="module", params=ARCHITECTURES)
def planted(request: pytest.FixtureRequest) -> dict[str, Usage]:
    source = Path(__file__).with_name("static_kernels.cu")
    return usage(make_cubin(kernels_ptx(source, request.param), request.param))


@with_tools
def test_spills_are_found(planted: dict[str, Usage]) -> None:
    spills = planted["static_spills"]
    assert spills.stack > 0
    assert spills.local > 8
    assert [line for line in beyond_limits("static_spills", spills) if "spilled" in line]


@with_tools
def test_counts(planted: dict[str, Usage]) -> None:
    counts = planted["static_counts"]
    assert (counts.stack, counts.local) == (0, 0)
    assert (counts.loads, counts.stores, counts.copies, counts.tensor) == (1, 1, 1, 3)
    assert counts.loop_tensor == 2
    assert 4 <= counts.loop <= 12
    assert 512 <= counts.shared <= 512 + 1024  # from sm_90 on, 1 KiB more is the system's


# ---- what is said of them ----

SOUND = Usage(64, 0, 0, 0, 1, 1, 8, 8, 1000, 256, 8)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("cbq_matmul_q4_0_bf16_8", {"stack": 8}, "registers are spilled: 8 bytes of stack"),
        ("cbq_matmul_q4_0_bf16_8", {"local": 2}, "registers are spilled: 0 bytes of stack, 2 loads"),
        ("cbq_matmul_q4_0_bf16_8", {"registers": 129}, "129 registers, at most 128"),
        ("cbq_matmul_q4_0_bf16_64", {"registers": 256}, "256 registers, at most 255"),
        ("cbq_dequant_q4_0_f32", {"registers": 65}, "65 registers, at most 64"),
        ("cbq_matmul_q4_0_bf16_8", {"copies": 0}, "0 copies"),
        ("cbq_matmul_q4_0_bf16_8", {"tensor": 0}, "0 tensor"),
        ("cbq_matmul_q4_0_f32_8", {}, "which have no float32"),
        ("cbq_dequant_q4_0_f32", {"loads": 0}, "0 loads"),
        ("cbq_dequant_q4_0_f32", {"stores": 0}, "0 stores"),
    ],
)
def test_hard_limits(name: str, change: dict[str, int], text: str) -> None:
    lines = list(beyond_limits(name, SOUND._replace(**change)))
    assert len(lines) == 1
    assert text in lines[0]


def test_plain_types_need_no_wide_loads() -> None:
    assert list(beyond_limits("cbq_dequant_i16_f32", SOUND._replace(loads=0, stores=0, tensor=0))) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"registers": 73}, "73 registers, the table has 64"),
        ({"shared": 16}, "16 bytes of static shared memory, the table has 0"),
        ({"copies": 7}, "7 copies, the table has 8"),
        ({"instructions": 1251}, "1251 instructions, the table has 1000"),
        ({"loop": 330}, "5.16 instructions for each weight in its loop, the table has 4.00"),
    ],
)
def test_ceilings_of_the_table(change: dict[str, int], text: str) -> None:
    name = "cbq_matmul_q4_0_bf16_8"
    assert list(beyond_table(name, SOUND._replace(registers=72, instructions=1250, loop=320), SOUND)) == []
    assert list(beyond_table(name, SOUND._replace(**change), SOUND)) == [f"{name}: {text}"]


def test_kernels_and_table_have_the_same_names() -> None:
    name = "cbq_matmul_q4_0_bf16_8"
    table: dict[str, Any] = {"nvcc": "13.0.88", "sm_80": {name: list(SOUND)}}
    other = {"sm_80": {"cbq_moe_sum": SOUND._replace(registers=60)}}
    assert compare({"sm_80": {name: SOUND}}, table, "13.0.88") == []
    assert compare(other, table, "13.0.88") == [
        "sm_80 cbq_matmul_q4_0_bf16_8: in the table, but there is no such kernel",
        "sm_80 cbq_moe_sum: not in the table",
    ]
    assert compare(other, table, "12.9.86") == []  # another nvcc: the hard limits alone
