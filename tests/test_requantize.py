"""The example that requantizes a language model: the files are GGUF to others too, and the model still speaks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: Perplexity of the passage, which is 18.3 as the model is.
BOUNDS = {"q8_0": 19, "iq4_nl": 26, "mxfp4": 75}

# The only Python for which PyPI has no wheel of tokenizers: see the Makefile.
pytestmark = pytest.mark.skipif(
    f"{sys.version_info.minor}{getattr(sys, 'abiflags', '')}" == "13t", reason="no tokenizers for Python 3.13t"
)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cbquant_requantize", EXAMPLES / "requantize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(example: ModuleType, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("requantized")
    return folder, example.requantize(model_path, list(BOUNDS), folder)


def test_the_model_still_speaks(results: tuple[Path, list[Any]]) -> None:
    source, *requantized = results[1]
    assert 17 < source.perplexity < 19
    for result in requantized:
        assert source.perplexity * 0.95 < result.perplexity < BOUNDS[result.fmt], result.fmt
        assert result.text.startswith(" Paris"), result.fmt


@pytest.mark.parametrize("fmt", BOUNDS)
def test_others_read_the_files(results: tuple[Path, list[Any]], model_path: Path, fmt: str) -> None:
    source = gguf.GGUFReader(model_path)
    reader = gguf.GGUFReader(next(results[0].glob(f"*-{fmt}.gguf")))
    assert [(t.name, tuple(t.shape)) for t in reader.tensors] == [(t.name, tuple(t.shape)) for t in source.tensors]
    for tensor in reader.tensors:
        assert tensor.tensor_type == (gguf.GGMLQuantizationType[fmt.upper()] if len(tensor.shape) > 1 else 0)
    first = next(t for t in reader.tensors if t.name == "blk.0.attn_q.weight")
    decoded = gguf.dequantize(first.data, first.tensor_type)
    original = next(t for t in source.tensors if t.name == first.name)
    error = np.linalg.norm(decoded - gguf.dequantize(original.data, original.tensor_type)) / np.linalg.norm(decoded)
    assert error < 0.2


def test_the_command_prints_a_table(
    example: ModuleType, model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.main(["--model", str(model_path), "--formats", "q4_k", "--keep", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("format")
    assert [line.split()[0] for line in lines[2:]] == ["as", "q4_k"]
    assert len(list(tmp_path.glob("*.gguf"))) == 1
