"""Faults planted into the kernel of products are found, whatever the schedule: each takes one line of cuda/device away,
or changes it. What is tested is that tests would notice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cuda import test_shim_products as products
from tests.cuda.products import assert_close, exact, make_weights, make_x
from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SEEDS = range(20)
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
    "no padding by shifts": ("stage.cuh", r"\(uint32_t\)\(uintptr_t\)from % 16;\n}", "0;\n}"),
    "rows past the last": ("stage.cuh", r"row < last \? row : last", "row"),
    "chunks past a row": ("stage.cuh", r"if \(16 \* chunk < shift \+ bytes\)", "if (1)"),
    "all tokens are stored": ("sums.cuh", r"token >= t\.tokens \|\| ", ""),
    "all rows are stored": ("sums.cuh", r" \|\| n >= a\.n", ""),
}


def planted(name: str) -> Shim:
    """matmul.cu, of one format, with a fault."""
    file, pattern, instead = FAULTS[name]
    folder = FOLDER / re.sub(r"\W+", "-", name)
    shutil.copytree(DEVICE, folder / "device", dirs_exist_ok=True)
    text = (DEVICE / file).read_text()
    changed, count = re.subn(pattern, instead, text)
    assert count == 1, f"{file} has {count} of {pattern}"
    (folder / "device" / file).write_text(changed)
    return Shim(
        build([one_format(folder)], [KERNEL_INCLUDES[0], folder / "device", *KERNEL_INCLUDES[2:]], ["-Wno-error"])
    )


def one_format(folder: Path) -> Path:
    """matmul.cu with the kernels of q4_0 only: a second's work for the compiler, not twelve."""
    source = folder / "matmul_q4_0.cu"
    text = (ROOT / "cuda" / "kernels" / "matmul.cu").read_text().replace("../host/", f"{ROOT}/cuda/host/")
    text, count = re.subn(r"CBQ_FORMATS\((\w+), CBQ_NOTHING\)", r"CBQ_FORMAT_q4_0(\1, CBQ_NOTHING)", text)
    assert count == 2
    text, count = re.subn(r"CBQ_PLA(NE_BLOCKS|IN_PRODUCTS)\(\w+\)", "", text)
    assert count == 4
    folder.mkdir(parents=True, exist_ok=True)
    source.write_text(text)
    return source


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


@pytest.fixture(scope="module")
def sound() -> Shim:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return Shim(build([one_format(FOLDER)], KERNEL_INCLUDES))


def test_without_a_fault_all_is_well(sound: Shim) -> None:
    assert not any(wrong(sound, seed) for seed in SEEDS)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found_in_every_schedule(name: str) -> None:
    shim = planted(name)
    missed = [seed for seed in SEEDS if not wrong(shim, seed)]
    assert not missed
