"""A language model in NumPy and cbquant: SmolLM2-135M-Instruct from its GGUF file, streaming text.

    python examples/generate.py "Why is the sky blue?" [--max-tokens 100] [--precision q8]
    python examples/generate.py --raw "The capital of France is"

Read it from top to bottom: the hyper-parameters, the model, the tokens, the command line. The weights stay quantized:
`cbquant.matmul` multiplies with the blocks as they lie in the file, and `QuantTensor.rows` decodes the rows of the
embedding that a text needs. Everything else is NumPy. Without --model it takes the file of examples/demo.py. It needs
the tokenizers library besides: ``pip install ".[generate]"`` in a checkout.

Shapes in comments: T tokens, S positions in the cache (those of the T included), D the width of the model, H heads
of d elements, G key-value heads, V tokens in the vocabulary.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant.files import File

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Floats = NDArray[np.floating[Any]]

#: The most tokens that go through the model at once: bounds the memory of attention, H * T * S floats.
CHUNK = 512

#: tokenizer.ggml.token_type of tokens that no text spells, such as <|im_end|>.
CONTROL = 3


# --- hyper-parameters ---


class Config(NamedTuple):
    """What a GGUF file says of a model of the Llama architecture."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    epsilon: float
    rope_base: float

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Config:
        """From the file's metadata; a ValueError where this example would compute something else than the model."""
        if metadata.get("general.architecture") != "llama":
            raise ValueError(f"expected the architecture 'llama', got {metadata.get('general.architecture')!r}")
        heads = metadata["llama.attention.head_count"]
        config = cls(
            layers=metadata["llama.block_count"],
            heads=heads,
            kv_heads=metadata.get("llama.attention.head_count_kv", heads),
            head_size=metadata["llama.embedding_length"] // heads,
            context=metadata["llama.context_length"],
            epsilon=metadata["llama.attention.layer_norm_rms_epsilon"],
            rope_base=metadata.get("llama.rope.freq_base", 10000.0),
        )
        for key, expected in (
            ("llama.attention.key_length", config.head_size),
            ("llama.rope.dimension_count", config.head_size),
            ("llama.rope.scaling.type", "none"),
        ):
            if metadata.get(key, expected) != expected:
                raise ValueError(f"{key}: expected {expected!r}, got {metadata[key]!r}")
        return config


# --- the model ---


class Layer(NamedTuple):
    """The weights of a layer, in the order of their use; the fields are the names that the file gives them."""

    attn_norm: Floats  # [D]
    attn_q: cbquant.QuantTensor  # [H * d, D]
    attn_k: cbquant.QuantTensor  # [G * d, D]
    attn_v: cbquant.QuantTensor  # [G * d, D]
    attn_output: cbquant.QuantTensor  # [D, H * d]
    ffn_norm: Floats  # [D]
    ffn_gate: cbquant.QuantTensor  # [F, D]; F is the width of the feed-forward part
    ffn_up: cbquant.QuantTensor  # [F, D]
    ffn_down: cbquant.QuantTensor  # [D, F]


class Cache:
    """The keys and values of all positions so far: a new token attends to them and nothing is computed twice."""

    def __init__(self, config: Config, positions: int) -> None:
        shape = (config.layers, config.kv_heads, positions, config.head_size)
        self.keys, self.values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.length = 0


def rms_norm(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """Each row of x [T, D] divided by its root mean square, times a weight for each column."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def softmax(x: Floats) -> Floats:
    """exp(x) over its sum along the last axis; subtracting the maximum changes nothing but avoids overflow."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(x: Floats) -> Floats:
    """x / (1 + exp(-x)), by way of tanh, which cannot overflow."""
    return x * (np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x))


def rotations(config: Config, begin: int, end: int) -> NDArray[np.complex64]:
    """RoPE's rotations [T, d / 2] of the positions from `begin` to `end`: pair i turns by base^(-2i / d) a position."""
    frequencies = config.rope_base ** (-np.arange(0, config.head_size, 2) / config.head_size)
    return np.exp(1j * np.outer(np.arange(begin, end), frequencies)).astype(np.complex64)


def rotate(x: Floats, turns: NDArray[np.complex64]) -> Floats:
    """RoPE: the pairs of x [heads, T, d], taken for complex numbers, turned by the angles of their positions.

    A pair is two neighbours here, elements 2i and 2i + 1. The checkpoint on Hugging Face pairs i with i + d / 2;
    llama.cpp's converter moves the rows of attn_q and attn_k, so that the pairs of a GGUF file lie side by side
    (`cbquant.unpermute_rope` undoes it). The products of queries and keys are the same in both orders.
    """
    pairs = np.ascontiguousarray(x).view(np.complex64)
    return (pairs * turns).view(np.float32)


class Model:
    """A model of the Llama architecture over an open file, whose blocks it multiplies with where they lie.

    `precision` and `threads` are those of `cbquant.matmul`.
    """

    def __init__(self, file: File, precision: str = "f32", threads: int | None = None) -> None:
        self.config, self.precision, self.threads = Config.of(file.metadata), precision, threads
        check_names(file, self.config.layers)
        self.embedding = weights(file, "token_embd")
        self.layers = [
            Layer(*(weights(file, f"blk.{number}.{name}") for name in Layer._fields))
            for number in range(self.config.layers)
        ]
        self.output_norm = weights(file, "output_norm")
        # Small models use the embedding twice: a file without an output has its rows for both.
        self.output = weights(file, "output") if "output.weight" in file else self.embedding
        # A product of no rows: a wrong precision is an error here, not in the midst of a text.
        self.logits(np.empty((0, self.output.shape[1]), np.float32))

    def product(self, x: Floats, weight: cbquant.QuantTensor) -> Floats:
        """x [..., K] times the transpose of a weight [N, K]: [..., N]. All the work on weights is done here."""
        return cbquant.matmul(x, weight, precision=self.precision, threads=self.threads)

    def forward(self, tokens: Sequence[int], cache: Cache) -> Floats:
        """Hidden states [T, D] of tokens that come after those in the cache, which grows by them."""
        begin, end = cache.length, cache.length + len(tokens)
        turns = rotations(self.config, begin, end)
        # [T, S]: no token sees those after it.
        mask = np.where(np.arange(end) > np.arange(begin, end)[:, None], np.float32(-np.inf), np.float32(0))
        x = self.embedding.rows(tokens)
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            h = rms_norm(x, layer.attn_norm, self.config.epsilon)
            x = x + self.attention(h, layer, keys[:, :end], values[:, :end], turns, mask)
            h = rms_norm(x, layer.ffn_norm, self.config.epsilon)
            x = x + self.feed_forward(h, layer)
        cache.length = end
        return rms_norm(x, self.output_norm, self.config.epsilon)

    def attention(
        self, x: Floats, layer: Layer, keys: Floats, values: Floats, turns: NDArray[np.complex64], mask: Floats
    ) -> Floats:
        """Each token's mixture [T, D] of the values of those before it; keys and values [G, S, d] get the new ones."""
        config, count = self.config, len(x)

        def split(y: Floats) -> Floats:  # [T, heads * d] -> [heads, T, d]
            return y.reshape(count, -1, config.head_size).swapaxes(0, 1)

        keys[:, -count:] = rotate(split(self.product(x, layer.attn_k)), turns)
        values[:, -count:] = split(self.product(x, layer.attn_v))
        queries = rotate(split(self.product(x, layer.attn_q)), turns)
        # Grouped queries: H / G neighbouring heads share the keys and values of one key-value head.
        queries = queries.reshape(config.kv_heads, -1, count, config.head_size)
        scores = queries @ keys[:, None].swapaxes(-1, -2)  # [G, H / G, T, S]
        mixed = softmax(scores * np.float32(config.head_size**-0.5) + mask) @ values[:, None]  # [G, H / G, T, d]
        return self.product(mixed.transpose(2, 0, 1, 3).reshape(count, -1), layer.attn_output)

    def feed_forward(self, x: Floats, layer: Layer) -> Floats:
        """SwiGLU: one product opens and shuts the gates of another, element by element."""
        return self.product(silu(self.product(x, layer.ffn_gate)) * self.product(x, layer.ffn_up), layer.ffn_down)

    def logits(self, hidden: Floats) -> Floats:
        """A score for each token of the vocabulary to come next: hidden states [..., D] to [..., V]."""
        return self.product(hidden, self.output)


def weights(file: File, name: str) -> Any:
    """A tensor: vectors as arrays, matrices as QuantTensor even where they are not quantized (f32, f16)."""
    tensor = file[f"{name}.weight"]
    if isinstance(tensor, np.ndarray) and tensor.ndim > 1:
        return cbquant.QuantTensor(tensor.view(np.uint8), file.infos[f"{name}.weight"].format, tensor.shape)
    return tensor


def check_names(file: File, layers: int) -> None:
    """Raise where a tensor is missing, or where the file has one (a bias, an expert) that this example would ignore."""
    names = {f"blk.{number}.{name}.weight" for number in range(layers) for name in Layer._fields}
    names |= {"token_embd.weight", "output_norm.weight"}
    for what, found in (("missing", names - set(file)), ("unknown", set(file) - names - {"output.weight"})):
        if found:
            raise ValueError(f"{file.path}: {what} tensors: {', '.join(sorted(found)[:3])} ({len(found)} in all)")


# --- from text to tokens and back ---


def load_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of SmolLM2, made of the vocabulary and the merges in the file.

    Text is cut into words (each digit is one, a blank belongs to the word after it), words into bytes, and pairs of
    neighbours are merged in the order of the list of merges: byte-level BPE, as GPT-2 has it.
    """
    try:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    except ImportError as error:
        raise ImportError(
            f'text needs the tokenizers library: pip install ".[generate]" in a checkout, or tokenizers ({error})'
        ) from error
    for key, expected in (("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm")):
        if metadata.get(key) != expected:  # others cut words in other ways
            raise ValueError(f"{key}: expected {expected!r}, got {metadata.get(key)!r}")
    vocabulary = metadata["tokenizer.ggml.tokens"]
    # Tokens are written in an alphabet of 256 letters, one a byte. The blank is not among them ("Ġ" stands for its
    # byte), so that it can separate the halves of a merge.
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(vocabulary)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = np.flatnonzero(np.asarray(metadata["tokenizer.ggml.token_type"]) == CONTROL)
    tokenizer.add_special_tokens([AddedToken(vocabulary[number], normalized=False) for number in control])
    return tokenizer


def chat_prompt(metadata: Mapping[str, Any], message: str) -> str:
    """What the file's chat template makes of one message: a system message, the message, the head of an answer.

    The template is a program in Jinja's language. This is what that of SmolLM2 does with one message; the words of
    the system message are taken from it.
    """
    template = metadata.get("tokenizer.chat_template", "")
    system = re.search(r"<\|im_start\|>system\n.*?<\|im_end\|>\n", template, re.DOTALL)
    if not system:
        raise ValueError("tokenizer.chat_template: expected one of the kind of SmolLM2's; use --raw")
    return f"{system[0]}<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"


def end_tokens(metadata: Mapping[str, Any]) -> set[int]:
    """The tokens that say that nothing follows: the end of an answer, and of a document that was read in training."""
    ends = (number for number, token in enumerate(metadata["tokenizer.ggml.tokens"]) if token == "<|endoftext|>")
    return {int(metadata["tokenizer.ggml.eos_token_id"]), *ends}


def text_of(tokenizer: Tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """The text of tokens as they come. A character may need several; its bytes wait until it is whole."""
    pending: list[int] = []
    for token in tokens:
        pending.append(token)
        text = tokenizer.decode(pending, skip_special_tokens=False)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            yield text
            pending.clear()
    if pending:
        yield tokenizer.decode(pending, skip_special_tokens=False)


# --- generation ---


def generate(
    model: Model,
    prompt: Sequence[int],
    max_tokens: int,
    choose: Callable[[Floats], Any] = np.argmax,
    ends: Collection[int] = (),
) -> Iterator[int]:
    """Tokens that follow a prompt, until one of `ends` or `max_tokens` of them.

    `choose` makes a token of logits [V]; the default, the most likely one, is greedy decoding.
    """
    cache = Cache(model.config, len(prompt) + max_tokens)
    tokens = list(prompt)
    for _ in range(max_tokens):
        # The whole prompt at first ("prefill", T tokens share each weight), then one token at a time ("decode").
        for begin in range(0, len(tokens), CHUNK):
            hidden = model.forward(tokens[begin : begin + CHUNK], cache)
        token = int(choose(model.logits(hidden[-1])))
        if token in ends:
            return
        yield token
        tokens = [token]


def sampler(temperature: float, seed: int | None) -> Callable[[Floats], Any]:
    """A function that draws a token by its probability; a temperature below 1 favours the likely ones."""
    rng = np.random.default_rng(seed)
    return lambda logits: rng.choice(logits.size, p=softmax(logits.astype(np.float64) / temperature))


# --- the command line ---


def write(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Iterable[int]) -> None:
    """Write the text of tokens to stdout as they come, then to stderr how fast they came."""
    times = [time.perf_counter()]

    def watched() -> Iterator[int]:
        for token in tokens:
            times.append(time.perf_counter())
            yield token

    for text in text_of(tokenizer, watched()):
        print(text, end="", flush=True)
    print(flush=True)
    count = len(times) - 1
    if count > 0:
        print(f"prefill: {len(prompt)} tokens, {len(prompt) / (times[1] - times[0]):.1f} tokens/s", file=sys.stderr)
    if count > 1:
        print(f"decode: {count - 1} tokens, {(count - 1) / (times[-1] - times[1]):.1f} tokens/s", file=sys.stderr)


def arguments(argv: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description="Generate text with SmolLM2-135M-Instruct in NumPy and cbquant.")
    parser.add_argument("prompt", nargs="?", default="What is gravity?", help="default: %(default)s")
    parser.add_argument("--raw", action="store_true", help="continue the prompt instead of answering it")
    parser.add_argument("--model", type=Path, help="a GGUF file of SmolLM2 (default: that of examples/demo.py)")
    parser.add_argument("--max-tokens", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--precision", default="f32", help="of cbquant.matmul: f32, bf16, q8, q16 (default: f32)")
    parser.add_argument("--threads", type=int, help="default: what cbquant takes")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0, always the most likely token")
    parser.add_argument("--seed", type=int, help="of the random numbers that a temperature needs")
    return parser, parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Generate text; an error of the arguments or the file is a SystemExit that says what is wrong."""
    parser, args = arguments(argv)
    if args.max_tokens < 1:
        parser.error(f"--max-tokens: expected 1 or more, got {args.max_tokens}")
    if args.temperature < 0:
        parser.error(f"--temperature: expected 0 or more, got {args.temperature:g}")
    if args.model is None:
        from demo import find_model

        args.model = find_model()
    try:
        file = cbquant.open(args.model)
        model = Model(file, args.precision, args.threads)
        tokenizer = load_tokenizer(file.metadata)
        prompt = args.prompt if args.raw else chat_prompt(file.metadata, args.prompt)
    except KeyError as error:
        parser.error(f"{args.model}: its metadata has no {error}")
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    tokens = tokenizer.encode(prompt).ids
    if not 0 < len(tokens) <= model.config.context - args.max_tokens:
        room = f"1 to {model.config.context - args.max_tokens} tokens, beside --max-tokens {args.max_tokens}"
        parser.error(f"prompt: expected {room}, got {len(tokens)}")
    choose = sampler(args.temperature, args.seed) if args.temperature else np.argmax
    write(tokenizer, tokens, generate(model, tokens, args.max_tokens, choose, end_tokens(file.metadata)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
