"""The kernel of products for Hopper, with few formats: seconds for a compiler, not minutes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.cuda import test_shim_products as products
from tests.cuda.products import Weights
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build
from tests.paths import ROOT

FOLDER = ROOT / "build" / "shim" / "wgmma"
DEVICE = ROOT / "cuda" / "device"
FORMATS = ("q4_0", "q4_k", "iq4_xs", "q8_0")
FUNCTIONS = ("cbq_cuda_wgmma_workspace", "cbq_cuda_wgmma_matmul")


def few_formats(name: str, formats: Sequence[str], folder: Path = FOLDER) -> Path:
    """cuda/kernels/NAME.cu with the kernels of some formats."""
    text = (ROOT / "cuda" / "kernels" / f"{name}.cu").read_text().replace("../host/", f"{ROOT}/cuda/host/")
    text = text.replace('"products.h"', f'"{ROOT}/cuda/kernels/products.h"')
    chosen = " ".join(rf"CBQ_FORMAT_{f}(\1, CBQ_NOTHING)" for f in formats)
    text, count = re.subn(r"CBQ_FORMATS\((\w+), CBQ_NOTHING\)", chosen, text)
    text, planes = re.subn(r"CBQ_PLANE_BLOCKS\(\w+\)", "", text)
    if (count, planes) != (2, 2):
        raise ValueError(f"{name}.cu lists formats in {count} and {planes} places")
    if "cbq_products_of_fragments" in text:
        text += products.NO_FRAGMENTS
    source = folder / f"{name}_{'_'.join(formats)}.cu"
    folder.mkdir(parents=True, exist_ok=True)
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    return source


@cache
def library() -> Path:
    return build([few_formats("matmul_wgmma", FORMATS), few_formats("matmul", FORMATS[:1])], KERNEL_INCLUDES)


#: A fault: places of cuda/device/FILE, what is there, and what is there instead. Where that ends with a semicolon it is
#: a statement, else an expression.
Fault = Sequence[tuple[str, str, str]]


def planted(faults: tuple[Fault, ...]) -> Path:
    """The kernel of q4_0 with faults, of which the variable `planted_fault` chooses one: its number, or -1."""
    folder = FOLDER / "faults"
    shutil.copytree(DEVICE, folder / "device", dirs_exist_ok=True)
    sound = {file: (DEVICE / file).read_text() for fault in faults for file, _, _ in fault}
    texts = dict(sound)
    for i, (file, good, bad) in ((i, edit) for i, fault in enumerate(faults) for edit in fault):
        if sound[file].count(good) != 1:
            raise ValueError(f"{file} has {sound[file].count(good)} of {good}")
        is_statement, condition = good.endswith(";"), f"planted_fault == {i}"
        both = f"if ({condition}) {{ {bad} }} else {{ {good} }}" if is_statement else f"({condition} ? {bad} : {good})"
        texts[file] = texts[file].replace(good, both)
    head = '#pragma once\nextern "C" int planted_fault;'
    for file, text in texts.items():
        (folder / "device" / file).write_text(text.replace("#pragma once", head))
    source = few_formats("matmul_wgmma", FORMATS[:1], folder)
    source.write_text('extern "C" { int planted_fault = -1; }\n' + source.read_text())
    includes = [KERNEL_INCLUDES[0], folder / "device", *KERNEL_INCLUDES[2:]]
    return build([source, few_formats("matmul", FORMATS[:1])], includes, ["-Wno-error"])


def multiply(shim: Shim, x: NDArray[Any], dtype: str, weights: list[Weights], **options: Any) -> NDArray[Any]:
    y, name = products.multiply(shim, x, dtype, weights, "bf16", functions=FUNCTIONS, **options)
    assert name == f"matmul_{weights[0].fmt}_bf16_wgmma_256"
    return y
