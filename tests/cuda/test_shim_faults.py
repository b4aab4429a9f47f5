"""Faults planted into the kernel of products are found, whatever the schedule: each takes one line of cuda/device away,
or changes it. What is tested is that tests would notice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cuda import test_shim_fragments as fragments
from tests.cuda import test_shim_products as products
from tests.cuda.products import assert_close, exact, make_weights, make_x
from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SEEDS, FEW_SEEDS = range(20), range(4)
DEVICE = ROOT / "cuda" / "device"
FOLDER = ROOT / "build" / "shim" / "faults"

#: Name: file, what is there, what is there instead.
FAULTS = {
    "no wait for copies": ("product.cuh", r"cu_wait<L::stages - 2>\(\);", ""),
    "wait for too few copies": ("product.cuh", r"cu_wait<L::stages - 2>\(\);", "cu_wait<L::stages - 1>();"),
    "no barrier after the copies": ("product.cuh", r"cu_barrier\(\); // the step has landed", "// "),
    "no barrier after the rows of x": ("product.cuh", r"cu_barrier\(\); // the rows are there", "// "),
    "a stage too early": ("product.cuh", r"const uint32_t ahead = L::stages - 1", "const uint32_t ahead = L::stages"),
    "a part is left out": ("product.cuh", r"cta = blockIdx\.x \+ 1; begin_of", "cta = blockIdx.x + 2; begin_of"),
    "no padding by shifts": ("in_blocks.cuh", r"\(uint32_t\)\(uintptr_t\)from % 16;\n}", "0;\n}"),
    "rows past the last": ("in_blocks.cuh", r"row < last \? row : last", "row"),
    "chunks past a row": ("in_blocks.cuh", r"if \(16 \* chunk < shift \+ bytes\)", "if (1)"),
    "all tokens are stored": ("sums.cuh", r"token >= t\.tokens \|\| ", ""),
    "all rows are stored": ("sums.cuh", r" \|\| n >= a\.n", ""),
}
#: The same, for weights in fragments.
FRAGMENT_FAULTS = {
    "no zeros beyond k": ("stage.cuh", r"else if \(e < padded\)", "else if (0)"),
    "a unit less": ("in_fragments.cuh", r"i < units \* F::unit_bytes", "i + F::unit_bytes < units * F::unit_bytes"),
    "one row's codes twice": ("in_fragments.cuh", r"words \+ F::code_bits", "words"),
    "padded columns are blocks": ("repack.cu", r" && block \+ in_unit < row_blocks", ""),
}


def planted(name: str) -> Shim:
    """Kernels of products, of one format, with a fault."""
    file, pattern, instead = (FAULTS | FRAGMENT_FAULTS)[name]
    folder = FOLDER / re.sub(r"\W+", "-", name)
    shutil.copytree(DEVICE, folder / "device", dirs_exist_ok=True)
    sources = one_format(folder)
    if name in FAULTS:
        sources = without_fragments(sources)
    changed = folder / "device" / file if file.endswith(".cuh") else folder / file
    text, count = re.subn(pattern, instead, changed.read_text())
    assert count == 1, f"{file} has {count} of {pattern}"
    changed.write_text(text)
    return Shim(build(sources, [KERNEL_INCLUDES[0], folder / "device", *KERNEL_INCLUDES[2:]], ["-Wno-error"]))


def one_format(folder: Path) -> list[Path]:
    """The sources with the kernels of q4_0 only: a second's work for the compiler, not twelve."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("matmul.cu", "fragments.cu", "repack.cu", "products.h"):
        text = (ROOT / "cuda" / "kernels" / name).read_text().replace("../host/", f"{ROOT}/cuda/host/")
        text, blocks = re.subn(r"CBQ_FORMATS\((\w+), CBQ_NOTHING\)", r"CBQ_FORMAT_q4_0(\1, CBQ_NOTHING)", text)
        text, fragments = re.subn(r"CBQ_FRAGMENTS\((\w+)\)", r"\1(q4_0)", text)
        text, others = re.subn(r"CBQ_PLA(NE_BLOCKS|IN_PRODUCTS)\(\w+\)", "", text)
        assert blocks + fragments == (0 if name == "products.h" else 2)
        assert others == (4 if name == "matmul.cu" else 0)
        (folder / name).write_text(text)
    return [folder / name for name in ("matmul.cu", "fragments.cu", "repack.cu")]


def without_fragments(sources: list[Path]) -> list[Path]:
    """Blocks alone, which is less to compile."""
    with sources[0].open("a") as matmul:
        matmul.write(products.NO_FRAGMENTS)
    return sources[:1]


def wrong(shim: Shim, seed: int) -> bool:
    """Whether a product goes wrong: many steps and several tiles for each CTA, odd sizes. (multiply() finds stores
    past a row's end, and the shim those past an allocation's.)"""
    w, x = make_weights("q4_0", 150, 1504), make_x(11, 1504, "bfloat16")
    shim.seed(seed)
    try:
        y, _ = products.multiply(shim, x, "bfloat16", [w], "bf16", extra_stride=8)
        assert_close(y, "float32", exact(x, "bfloat16", w.values, "bf16"), 1504)
        w, x = make_weights("q4_0", 150, 1504), make_x(29, 1504, "float32")
        y, _ = products.multiply(shim, x, "float32", [w], "f32", processors=2, extra_stride=8)
        assert_close(y, "float32", exact(x, "float32", w.values, "f32"), 1504)
        w, x = make_weights("q4_0", 650, 64), make_x(7, 64, "bfloat16")  # short tiles, one after the other
        y, _ = products.multiply(shim, x, "bfloat16", [w], "bf16", processors=1, extra_stride=8)
        assert_close(y, "float32", exact(x, "bfloat16", w.values, "bf16"), 64)
        shim.free()  # looks beside allocations, too
    except (ShimError, AssertionError):
        shim.sizes.clear()
        return True
    return False


def wrong_fragments(shim: Shim, seed: int) -> bool:
    """The same of weights in fragments: k is no whole step, and no whole unit."""
    w, x = make_weights("q4_0", 70, 416), make_x(11, 416, "bfloat16")
    shim.seed(seed)
    try:
        y, _ = fragments.product(shim, x, "bfloat16", [w], "bf16")
        assert_close(y, "float32", exact(x, "bfloat16", w.values, "bf16"), 416)
        shim.free()
    except (ShimError, AssertionError):
        shim.sizes.clear()
        return True
    return False


@pytest.fixture(scope="module")
def sound() -> Shim:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return Shim(build(one_format(FOLDER), KERNEL_INCLUDES))


def test_without_a_fault_all_is_well(sound: Shim) -> None:
    assert not any(wrong(sound, seed) for seed in SEEDS)
    assert not any(wrong_fragments(sound, seed) for seed in FEW_SEEDS)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found_in_every_schedule(name: str) -> None:
    shim = planted(name)
    missed = [seed for seed in SEEDS if not wrong(shim, seed)]
    assert not missed


@pytest.mark.parametrize("name", FRAGMENT_FAULTS)
def test_planted_fault_in_fragments_is_found(name: str) -> None:
    shim = planted(name)
    missed = [seed for seed in FEW_SEEDS if not wrong_fragments(shim, seed)]
    assert not missed
