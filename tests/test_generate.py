"""The example that generates text: its logits against a plain float64 model, its tokens, texts, and command line."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

import cbquant
from tests import gguf_bytes as gb

# The only Python for which PyPI has no wheel of tokenizers: see the Makefile.
pytestmark = pytest.mark.skipif(
    f"{sys.version_info.minor}{getattr(sys, 'abiflags', '')}" == "13t", reason="no tokenizers for Python 3.13t"
)

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

Kind = gguf.GGMLQuantizationType
MATRIX_KINDS = (Kind.Q8_0, Kind.Q4_1, Kind.F16)
LAYER = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"

#: Of the largest logit: float32 sums are some 1e-6 of it off.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("cbquant_generate", EXAMPLES / "generate.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def file(model_path):
    with cbquant.open(model_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def smollm(example, file):
    return example.Model(file)


@pytest.fixture(scope="module")
def tokenizer(example, file):
    return example.load_tokenizer(file.metadata)


def write_tiny(path, *, architecture="llama", without="", extra="", **changes):
    """A model of two layers with random weights in three formats, and an output that is not the embedding."""
    width, heads, kv_heads, inner, vocabulary = 96, 6, 2, 128, 50
    writer = gguf.GGUFWriter(path, architecture)
    numbers = {
        "llama.block_count": 2,
        "llama.context_length": 64,
        "llama.embedding_length": width,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        **changes,
    }
    for key, value in numbers.items():
        writer.add_uint32(key, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 100.0)
    norm, square, kv, up = (width,), (width, width), (width // heads * kv_heads, width), (inner, width)
    of_layer = zip(LAYER.split(), (norm, square, kv, kv, square, norm, up, up, (width, inner)), strict=True)
    shapes = {f"blk.{layer}.{name}": shape for name, shape in of_layer for layer in range(2)}
    shapes |= {"token_embd": (vocabulary, width), "output_norm": norm, "output": (vocabulary, width)}
    if extra:
        shapes[extra] = norm
    rng = np.random.default_rng(1)
    for number, (name, shape) in enumerate(shapes.items()):
        values = rng.normal(1 if len(shape) == 1 else 0, 0.3, shape).astype(np.float32)
        kind = MATRIX_KINDS[number % 3] if len(shape) > 1 else Kind.F32
        if name != without:
            writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    gb.save(writer)
    return path


# --- the model ---


def float64_logits(file, tokens):
    """The model once more, as the checkpoint on Hugging Face has it: float64, head by head, halves that rotate."""
    number = {key.removeprefix("llama."): value for key, value in file.metadata.items() if key.startswith("llama.")}
    heads, kv_heads = number["attention.head_count"], number["attention.head_count_kv"]
    size = number["embedding_length"] // heads
    angles = np.outer(np.arange(len(tokens)), number["rope.freq_base"] ** (-np.arange(size // 2) / (size // 2)))
    cos, sin = np.tile(np.cos(angles), 2), np.tile(np.sin(angles), 2)

    def weight(name):
        return np.asarray(file[f"{name}.weight"]).astype(np.float64)

    def norm(x, name):
        return weight(name) * x / np.sqrt((x**2).mean(1, keepdims=True) + number["attention.layer_norm_rms_epsilon"])

    def rope(x):
        return x * cos + np.concatenate([-x[:, size // 2 :], x[:, : size // 2]], axis=1) * sin

    def head(x, w, index):
        return x @ w[index * size : (index + 1) * size].T

    x = weight("token_embd")[tokens]
    for layer in (f"blk.{index}." for index in range(number["block_count"])):
        h = norm(x, layer + "attn_norm")
        q = cbquant.unpermute_rope(weight(layer + "attn_q"), heads)
        k = cbquant.unpermute_rope(weight(layer + "attn_k"), kv_heads)
        v, mixed = weight(layer + "attn_v"), []
        for index in range(heads):
            shared = index * kv_heads // heads
            scores = rope(head(h, q, index)) @ rope(head(h, k, shared)).T / np.sqrt(size)
            shares = np.tril(np.exp(scores))
            mixed.append(shares / shares.sum(1, keepdims=True) @ head(h, v, shared))
        x = x + np.concatenate(mixed, axis=1) @ weight(layer + "attn_output").T
        h = norm(x, layer + "ffn_norm")
        gate = h @ weight(layer + "ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weight(layer + "ffn_up").T)) @ weight(layer + "ffn_down").T
    output = "output" if "output.weight" in file else "token_embd"
    return norm(x, "output_norm") @ weight(output).T


def all_logits(example, model, tokens, parts):
    """The logits of all tokens, which go through the model in parts of so many."""
    cache = example.Cache(model.config, len(tokens))
    hidden, begin = [], 0
    for count in parts:
        hidden.append(model.forward(tokens[begin : begin + count], cache))
        begin += count
    assert begin == len(tokens) == cache.length
    return model.logits(np.concatenate(hidden))


def assert_close(logits, expected):
    assert (logits.dtype, logits.shape) == (np.float32, expected.shape)
    assert np.abs(logits - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_logits_equal_a_float64_model(example, file, smollm, tokenizer):
    tokens = tokenizer.encode("The sea is 3 times as deep").ids
    expected = float64_logits(file, tokens)
    assert expected.shape == (len(tokens), 49152)
    for parts in ([len(tokens)], [1] * len(tokens), [4, 1, len(tokens) - 5]):
        assert_close(all_logits(example, smollm, tokens, parts), expected)


def test_logits_of_a_model_with_an_output_of_its_own(example, tmp_path):
    with cbquant.open(write_tiny(tmp_path / "tiny.gguf")) as tiny:
        model, tokens = example.Model(tiny), [7, 49, 0, 7, 13, 13, 22, 5, 41]
        expected = float64_logits(tiny, tokens)
        assert np.abs(expected).max() > 1
        assert_close(all_logits(example, model, tokens, [9]), expected)
        assert_close(all_logits(example, model, tokens, [1] * 9), expected)


def test_long_prompts_go_through_in_chunks(example, tmp_path, monkeypatch):
    seen = []

    def choose(logits):
        seen.append(logits)
        return 3

    with cbquant.open(write_tiny(tmp_path / "tiny.gguf")) as tiny:
        model, prompt = example.Model(tiny), list(range(11))
        expected = float64_logits(tiny, [*prompt, 3])[-2:]
        monkeypatch.setattr(example, "CHUNK", 4)
        assert list(example.generate(model, prompt, 2, choose)) == [3, 3]
        assert_close(np.stack(seen), expected)


def test_precision_and_threads_reach_every_product(example, tmp_path, monkeypatch):
    right, asked = cbquant.matmul, set()

    def matmul(x, w, precision, threads):
        asked.add((precision, threads))
        return right(x, w, threads=threads)

    monkeypatch.setattr(cbquant, "matmul", matmul)
    with cbquant.open(write_tiny(tmp_path / "tiny.gguf")) as tiny:
        all_logits(example, example.Model(tiny, "bf16", 2), [1, 2], [2])
    assert asked == {("bf16", 2)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gpt2"}, "architecture 'llama', got 'gpt2'"),
        ({"without": "blk.1.ffn_up"}, r"missing tensors: blk.1.ffn_up.weight \(1 in all\)"),
        ({"extra": "rope_freqs"}, r"unknown tensors: rope_freqs.weight \(1 in all\)"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count: expected 16, got 8"),
    ],
)
def test_other_models_are_refused(example, tmp_path, changes, message):
    with (
        cbquant.open(write_tiny(tmp_path / "tiny.gguf", **changes)) as tiny,
        pytest.raises(ValueError, match=message),
    ):
        example.Model(tiny)


# --- texts ---

#: The likeliest token is at least so much above the next one (logits, which float32 gives to 1e-4 or better) at each
#: step: 0.58, 1.90 and 0.22 when these were made. Nothing but a mistake turns one into another.
MARGIN = 0.05

TEXTS = [
    (
        True,
        "What is gravity?",
        16,
        "Gravity is a fundamental concept in physics that describes the curvature of spacetime caused by",
    ),
    (False, "1, 2, 3, 4, 5,", 16, " 6, 7, 8, 9, 10,"),
    (False, "The capital of France is", 12, " Paris.\n\nThe answer is: 201"),
]


@pytest.mark.parametrize(("chat", "prompt", "most", "expected"), TEXTS, ids=["chat", "numbers", "raw"])
def test_greedy_text(example, file, smollm, tokenizer, chat, prompt, most, expected):
    margins = []

    def choose(logits):
        second, first = np.sort(logits)[-2:]
        margins.append(first - second)
        return np.argmax(logits)

    tokens = tokenizer.encode(example.chat_prompt(file.metadata, prompt) if chat else prompt).ids
    text = "".join(example.text_of(tokenizer, example.generate(smollm, tokens, most, choose)))
    assert text == expected
    assert len(margins) == most
    assert min(margins) > MARGIN


def test_generation_stops_at_an_end(example, file, smollm, tokenizer):
    tokens = tokenizer.encode("The capital of France is").ids
    paris = tokenizer.encode(" Paris").ids
    ends = example.end_tokens(file.metadata)
    assert {tokenizer.id_to_token(token) for token in ends} == {"<|endoftext|>", "<|im_end|>"}
    assert list(example.generate(smollm, tokens, 3, ends=ends))[:1] == paris
    assert list(example.generate(smollm, tokens, 3, ends={*ends, *paris})) == []


def test_sampler_follows_the_probabilities(example):
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    draw = example.sampler(1.0, seed=1)
    shares = np.bincount([draw(logits) for _ in range(2000)], minlength=3) / 2000
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.05)
    cold = example.sampler(0.01, seed=1)
    assert {int(cold(logits)) for _ in range(50)} == {0}
    again = example.sampler(1.0, seed=7), example.sampler(1.0, seed=7)
    assert [int(again[0](logits)) for _ in range(20)] == [int(again[1](logits)) for _ in range(20)]


# --- tokens ---

#: What llama.cpp, too, makes of these with this file.
IDS = [
    ("Hello, world!", [19556, 28, 905, 17]),
    ("In 1984, 3.14 and 2²", [788, 216, 33, 41, 40, 36, 28, 216, 35, 30, 33, 36, 284, 216, 34, 19133]),
    ("it's John's, we'LL see", [269, 506, 2322, 506, 28, 392, 23, 16421, 963]),
    ("naïve 日本語 🙂", [3546, 46494, 17097, 241, 115, 40993, 179, 120, 248, 47526]),
    ("  two\n\n\tlines ", [216, 827, 1116, 197, 5110, 216]),
    ("<|im_start|>user\nHi<|im_end|>\n", [1, 4093, 198, 26843, 2, 198]),
    ("x <|im_end> y", [104, 2067, 108, 306, 79, 486, 46, 329]),
    ("x =  12", [104, 446, 256, 33, 34]),  # both blanks stay together: the digit is cut off first
    ("", []),
]


def bytes_of_letters():
    """GPT-2's alphabet: bytes that print in Latin-1 are their letters, the others are those from U+0100 on."""
    letters = {byte: chr(byte) for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return {letter: byte for byte, letter in letters.items()}


@pytest.mark.parametrize(("text", "ids"), IDS, ids=[repr(text) for text, _ in IDS])
def test_tokens_of_a_text(example, file, tokenizer, text, ids):
    assert tokenizer.encode(text).ids == ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert "".join(example.text_of(tokenizer, ids)) == text
    spelled = "".join(file.metadata["tokenizer.ggml.tokens"][number] for number in ids)
    alphabet = bytes_of_letters()
    assert bytes(alphabet[letter] for letter in spelled) == text.encode()


def test_tokenizer_has_the_vocabulary_of_the_file(file, tokenizer):
    tokens, kinds = file.metadata["tokenizer.ggml.tokens"], file.metadata["tokenizer.ggml.token_type"]
    assert tokenizer.get_vocab() == {token: number for number, token in enumerate(tokens)}
    special = [number for number, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL]
    assert len(special) == 17
    assert all(tokenizer.encode(f"a{tokens[number]}1").ids[1] == number for number in special)


def test_text_comes_in_whole_characters(example, tokenizer):
    ids = tokenizer.encode("日本語!").ids
    pieces = list(example.text_of(tokenizer, ids))
    assert pieces == ["日", "本", "語", "!"]
    assert len(ids) > len(pieces)
    assert list(example.text_of(tokenizer, tokenizer.encode("語").ids[:2])) == ["\N{REPLACEMENT CHARACTER}"]


def test_chat_prompt_is_what_the_template_makes(example, file):
    assert example.chat_prompt(file.metadata, "Hi {{ x }}") == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi {{ x }}<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(ValueError, match="use --raw"):
        example.chat_prompt({"tokenizer.chat_template": "[INST] {{ messages }}"}, "Hi")


def test_other_tokenizers_are_refused_and_a_missing_library_is_named(example, file, monkeypatch):
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.pre: expected 'smollm', got 'llama-bpe'"):
        example.load_tokenizer({**file.metadata, "tokenizer.ggml.pre": "llama-bpe"})
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[generate\]"'):
        example.load_tokenizer(file.metadata)


# --- the command line and the notebook ---


def test_main_streams_and_says_how_fast(example, model_path, capsys):
    assert example.main(["--raw", "1, 2, 3, 4, 5,", "--model", str(model_path), "--max-tokens", "4"]) == 0
    out, err = capsys.readouterr()
    assert out == " 6, \n"  # the digit, the comma and both blanks are tokens
    assert "prefill: 14 tokens, " in err
    assert "decode: 3 tokens, " in err
    assert err.count(" tokens/s") == 2


def test_main_with_a_seed_repeats_itself(example, model_path, capsys):
    command = ["Hi", "--model", str(model_path), "--max-tokens", "4", "--temperature", "1.5", "--seed", "3"]
    texts = [(example.main(command), capsys.readouterr().out)[1] for _ in range(2)]
    assert texts[0] == texts[1] != "\n"


def test_main_finds_the_model_of_the_demo():
    command = [sys.executable, EXAMPLES / "generate.py", "--raw", "1, 2, 3, 4, 5,", "--max-tokens", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert done.stdout == " 6\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no-such.gguf"], "No such file or directory: 'no-such.gguf'"),
        (["--precision", "f64"], "precision: expected .*, got 'f64'"),
        (["--threads", "0"], "threads: "),
        (["--max-tokens", "0"], "--max-tokens: expected 1 or more, got 0"),
        (["--temperature", "-1"], "--temperature: expected 0 or more, got -1"),
        (["--max-tokens", "8190"], "prompt: expected 1 to 2 tokens, beside --max-tokens 8190, got 34"),
        (["--raw", ""], "prompt: expected 1 to 8092 tokens, beside --max-tokens 100, got 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_of_the_command_line(example, model_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        example.main(["--model", str(model_path), *arguments])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(message, err)


def test_missing_metadata_is_an_error_of_the_command_line(example, tmp_path, capsys):
    path = tmp_path / "empty.gguf"
    path.write_bytes(gb.gguf([gb.pair("general.architecture", gb.STRING, gb.string("llama"))]))
    with pytest.raises(SystemExit):
        example.main(["--model", str(path)])
    assert "empty.gguf: its metadata has no 'llama.attention.head_count'" in capsys.readouterr().err


def test_notebook_runs(model_path, monkeypatch, capsys):
    notebook = json.loads((EXAMPLES / "generate.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    monkeypatch.syspath_prepend(EXAMPLES)
    names = {"__name__": "notebook"}
    for cell in cells:
        assert cell["outputs"] == []
        exec("".join(cell["source"]), names)
    out = capsys.readouterr().out
    assert "' Paris'" in out
    assert "Gravity is a fundamental concept" in out
