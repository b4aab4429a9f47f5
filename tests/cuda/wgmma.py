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
    chosen = " ".join(rf"CBQ_FORMAT_{f}(\1, CBQ_NOTHING)" for f in formats)
    text, count = re.subn(r"CBQ_FORMATS\((\w+), CBQ_NOTHING\)", chosen, text)
    text, planes = re.subn(r"CBQ_PLANE_BLOCKS\(\w+\)", "", text)
    if (count, planes) != (2, 2):
        raise ValueError(f"{name}.cu lists formats in {count} and {planes} places")
    source = folder / f"{name}_{'_'.join(formats)}.cu"
    folder.mkdir(parents=True, exist_ok=True)
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    return source


@cache
def library() -> Path:
    return build([few_formats("matmul_wgmma", FORMATS), few_formats("matmul", FORMATS[:1])], KERNEL_INCLUDES)


def planted(name: str, file: str, pattern: str, instead: str) -> Shim:
    """The kernel of q4_0 with one place of cuda/device/FILE changed."""
    folder = FOLDER / re.sub(r"\W+", "-", name)
    shutil.copytree(DEVICE, folder / "device", dirs_exist_ok=True)
    changed, count = re.subn(pattern, instead, (DEVICE / file).read_text())
    if count != 1:
        raise ValueError(f"{file} has {count} of {pattern}")
    (folder / "device" / file).write_text(changed)
    sources = [few_formats("matmul_wgmma", FORMATS[:1], folder), few_formats("matmul", FORMATS[:1])]
    return Shim(build(sources, [KERNEL_INCLUDES[0], folder / "device", *KERNEL_INCLUDES[2:]], ["-Wno-error"]))


def multiply(shim: Shim, x: NDArray[Any], dtype: str, weights: list[Weights], **options: Any) -> NDArray[Any]:
    y, name = products.multiply(shim, x, dtype, weights, "bf16", functions=FUNCTIONS, **options)
    assert name == f"matmul_{weights[0].fmt}_wgmma_256"
    return y
