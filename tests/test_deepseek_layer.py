"""The example of a whole layer: against its float64 definition, in parts and at once, and its command line."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cbquant import deepseek

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "deepseek_layer"
MODULES = ("weights", "layer", "float64")
#: |a - b| <= bound * (1 + |b|); float32 sums are some 2e-6 off.
BOUND = 1e-4


@pytest.fixture(scope="module")
def example() -> Iterator[SimpleNamespace]:
    """The modules of the example, which import each other by their short names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        loaded = {name: importlib.import_module(name) for name in MODULES}
        spec = importlib.util.spec_from_file_location("cbquant_deepseek_layer", EXAMPLE / "__main__.py")
        assert spec is not None
        assert spec.loader is not None
        main = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(main)
        yield SimpleNamespace(main=main, **loaded)
        for name in MODULES:
            del sys.modules[name]


class Case:
    """A layer of small sizes, with 50 tokens for it."""

    def __init__(self, example: SimpleNamespace, attention: str) -> None:
        rng = np.random.default_rng(5)
        self.example, self.attention, self.sizes = example, attention, example.weights.SMALL
        self.weights = example.weights.random_weights(rng, self.sizes, attention)
        self.streams = example.weights.normal(rng, 50, 4, self.sizes.hidden)
        exact = example.float64.Float64(self.sizes, self.weights, attention, self.streams)
        results = list(exact.results(range(50)))
        self.expected = np.array([streams for streams, _ in results])
        assert min(margin for _, margin in results) > example.main.MARGIN  # so that every choice is float32's, too

    def outputs(self, parts: list[int], **options: Any) -> Any:
        """The outputs of all tokens, which go through in parts of so many."""
        layer = self.example.layer.Layer(self.sizes, self.weights, **options)
        cache = self.example.layer.Cache(self.sizes, self.attention, 50)
        ends = np.cumsum(parts).tolist()
        assert ends[-1] == 50
        found = [layer.forward(self.streams[end - n : end], cache) for n, end in zip(parts, ends, strict=True)]
        return np.concatenate(found)


@pytest.fixture(scope="module", params=["csa", "hca"])
def case(example: SimpleNamespace, request: pytest.FixtureRequest) -> Case:
    return Case(example, request.param)


def error(actual: Any, expected: Any) -> float:
    """The largest |a - b| / (1 + |b|); infinite where a number is not finite."""
    differences = np.abs(actual - expected) / (1 + np.abs(expected))
    return float(differences.max()) if np.isfinite(differences).all() else np.inf


PARTS = {"prefill": [50], "prefill, decode": [37, *[1] * 13], "decode": [1] * 50, "chunks": [3, 18, 1, 2, 16, 5, 5]}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_outputs_equal_float64(case: Case, parts: list[int]) -> None:
    outputs = case.outputs(parts)
    assert outputs.dtype == np.float32
    assert error(outputs, case.expected) <= BOUND


def test_prefill_then_decode_equals_one_by_one(case: Case) -> None:
    assert error(case.outputs([37, *[1] * 13]), case.outputs([1] * 50).astype(np.float64)) <= 1e-5


def test_threads_change_no_bit(case: Case) -> None:
    parts = [37, *[1] * 13]
    assert np.array_equal(case.outputs(parts, threads=1), case.outputs(parts, threads=3))


def test_inputs_are_those_that_count(case: Case) -> None:
    """Entries, windows, indexer and experts are all in play: without them the output would be another one."""
    sizes, last = case.sizes, [49]
    for change in ({"window": 7}, {"chosen": 2}, *([{"top": 4}] if case.attention == "csa" else [])):
        other = case.example.float64.Float64(sizes._replace(**change), case.weights, case.attention, case.streams)
        [(streams, _)] = other.results(last)
        assert error(streams, case.expected[49]) > 100 * BOUND
    for names in (
        ["pool_kv"],
        ["sink"],
        ["down"],
        ["shared_down"],
        *([["index_w"]] if case.attention == "csa" else []),
    ):
        weights = case.weights | {name: np.zeros(case.weights[name].shape, np.float32) for name in names}
        [(streams, _)] = case.example.float64.Float64(sizes, weights, case.attention, case.streams).results(last)
        assert error(streams, case.expected[49]) > 10 * BOUND


@pytest.mark.parametrize("fmt", ["q8_0", "iq2_xxs", "q2_k"])
def test_random_weights_have_the_variance_of_a_layer(example: SimpleNamespace, fmt: str) -> None:
    values = example.weights.random_tensor(np.random.default_rng(1), fmt, 3, 64, 512).dequant().astype(np.float64)
    assert values.shape == (3, 64, 512)
    assert abs(values.mean()) < 0.02 * values.std()
    assert abs(values.std() * 512**0.5 - 1) < 0.02


# --- the command line ---


def test_main_prints_times_and_what_it_compared(example: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert example.main.main(["--small", "--tokens", "30", "--steps", "4", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(csa|hca): 1 MiB of weights, made in ", out, re.MULTILINE) == ["csa", "hca"]
    assert len(re.findall(r"^34 of 34 tokens compared with float64: \S+e-0\d, within 0.0001$", out, re.MULTILINE)) == 2
    for name in ("moe_ffn", "sparse_sdpa_decode", "compressor_pool", "indexer_select", "route", "all else", "layer"):
        assert re.search(rf"^{name} +\d+\.\d +\d+\.\d+ +\d+$", out, re.MULTILINE), name


def test_main_fails_where_an_output_is_wrong(
    example: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = deepseek.vector_add
    monkeypatch.setattr(deepseek, "vector_add", lambda a, b, threads: right(a, b, threads=threads) * np.float32(1.01))
    assert example.main.main(["--small", "--attention", "hca", "--tokens", "20", "--steps", "1"]) == 1
    assert re.search(r"\n21 of 21 tokens compared with float64: \S+, NOT within 0.0001\n", capsys.readouterr().out)


def test_full_sizes_compare_the_last_tokens_too(example: SimpleNamespace) -> None:
    assert example.main.checked(2200, 2216, False) == [0, 733, 1466, 2199, 2200, 2205, 2210, 2215]
    assert example.main.checked(1, 2, False) == [0, 1]
    assert example.main.checked(3, 5, True) == [0, 1, 2, 3, 4]


def test_folder_runs() -> None:
    command = [sys.executable, EXAMPLE, "--small", "--tokens", "3", "--steps", "1", "--attention", "csa"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert "\n4 of 4 tokens compared with float64: " in done.stdout


@pytest.mark.parametrize("name", ["tokens", "steps", "threads"])
def test_numbers_are_from_1(example: SimpleNamespace, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit):
        example.main.main(["--small", f"--{name}", "0"])
    assert f"--{name}: expected 1 or more, got 0" in capsys.readouterr().err
