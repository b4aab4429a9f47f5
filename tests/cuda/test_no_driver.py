"""Importing cbquant, and asking what it is, leaves the driver alone; without one, calls say so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import cbquant
from cbquant import cuda
from cbquant.cuda import _driver
from tests.paths import ROOT


def run(code: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, with what the dynamic linker looks for in its errors."""
    env = {**os.environ, "LD_DEBUG": "libs", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)


@pytest.mark.parametrize(
    "code",
    [
        "import cbquant, sys; print('cbquant.cuda' in sys.modules, 'cbquant._cuda' in sys.modules)",
        "import cbquant.cuda, sys; print('cbquant._cuda' in sys.modules)",
        "import cbquant; cbquant.info(); print(False)",
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_DEBUG is of glibc")
def test_imports_do_not_touch_the_driver(code: str) -> None:
    done = run(code + "; print('libcuda' in open('/proc/self/maps').read())")
    assert set(done.stdout.split()) == {"False"}
    assert "libcuda.so" not in done.stderr


def test_info_says_what_was_built() -> None:
    native = _driver.load()
    text = cbquant.info()["cuda"]
    assert text == ("not built" if native is None else text)
    if native is not None:
        assert native.ARCHITECTURES in text
        assert text.endswith("not yet run on a GPU")


def test_reasons_are_sentences() -> None:
    if cuda.is_available():
        assert cuda.why_unavailable() is None
    else:
        assert len(str(cuda.why_unavailable()).split()) > 4
        with pytest.raises(cuda.CudaError) as caught:
            cuda.load(cbquant.QuantTensor(bytes(34), "q8_0", (1, 32)))
        assert str(cuda.why_unavailable()) in str(caught.value)
        assert caught.value.operation == "load"
    assert cuda.device_info()["run_on_gpu"] == "not yet run on a GPU"


def test_cuda_is_an_attribute_of_the_package() -> None:
    assert cbquant.cuda is cuda
    assert "cuda" in dir(cbquant)
