"""Which tensors are quantized, to which format, and what becomes of rows that are no whole blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import dropwhile
from typing import NamedTuple

from cbquant import _formats
from cbquant._formats import Format
from cbquant._unknown import is_unknown
from cbquant.files import TensorInfo
from cbquant.files._plain import whole_number_dtype
from cbquant.files._text import quoted

#: In place of a format: the tensor stays as it is, or is left out.
KEEP, DROP = "keep", "drop"

#: Plain formats that a tensor can be converted to.
PLAIN_TARGETS = ("f32", "f16", "bf16")

#: Parts of the names of tensors with two dimensions that stay as they are: they are small, and errors in them cost
#: much. The list is llama.cpp's (tensor_allows_quantization in src/llama-quant.cpp,
#: https://github.com/ggml-org/llama.cpp) and, in the second part, the names that these have in checkpoints.
KEPT_NAMES = (
    "norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "token_types.weight",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    *(f"time_mix_{part}.weight" for part in ("w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2")),
    *(f"time_mix_{part}.weight" for part in ("first", "decay_w1", "decay_w2", "lerp_fused")),
    "attn_rel_b.weight",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
    # checkpoints
    "mlp.gate.weight",
    "block_sparse_moe.gate.weight",
    "router.weight",
    "conv1d.weight",
    "position_embeddings.weight",
    "token_type_embeddings.weight",
    "relative_attention_bias.weight",
    "patch_embed",
)

#: What a format gives way to where rows are no whole blocks of it: llama.cpp's choice (tensor_type_fallback in the
#: same file), and of the same size for q1_0 and nvfp4, for which it has none. Without an entry, and where rows are
#: no blocks of 32 either, it is f16.
FALLBACKS = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs", "nvfp4"), "iq4_nl"),
    **dict.fromkeys(("q1_0", "q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
LAST_FALLBACK = "f16"

_WILDCARDS = "*?["


class Rule(NamedTuple):
    """A pattern of names, and a format, ``"keep"`` or ``"drop"``."""

    pattern: str
    format: str

    def is_part(self) -> bool:
        """Whether the pattern is a part of a name, not a shell pattern."""
        return not any(character in self.pattern for character in _WILDCARDS)

    def matches(self, name: str) -> bool:
        """Whether `name` holds the pattern, or as a whole matches the shell pattern.

        >>> [Rule(pattern, "q6_k").matches("blk.0.attn_v.weight") for pattern in ("attn_v", "*attn_v", "*attn_v*")]
        [True, False, True]
        """
        return self.pattern in name if self.is_part() else self.pattern == name or fnmatchcase(name, self.pattern)

    def means(self, name: str) -> bool:
        """Whether the pattern was written for whole names like this one, so that it may go against `KEPT_NAMES`."""
        return self.pattern == name or not self.is_part()


def target_format(name: str, argument: str = "fmt") -> Format:
    """The format of that name, once tensors can be converted to it.

    Raises
    ------
    TypeError, ValueError
        No such format, or one of integers or f64; `argument` is what the message calls it.
    """
    try:
        fmt = _formats.get(name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}{str(error).removeprefix('fmt')}") from None
    if fmt.kind == "plain" and fmt.name not in PLAIN_TARGETS:
        expected = f"a block format or {', '.join(PLAIN_TARGETS)}"
        raise ValueError(f"{argument}: expected {expected}, got {fmt.name}")
    return fmt


def parse_map(rules: Mapping[str, str] | Iterable[str] | None) -> list[Rule]:
    """The argument `map` of `quantize_file` as rules.

    >>> parse_map(["attn_v=q6_k", "output.weight=keep"])
    [Rule(pattern='attn_v', format='q6_k'), Rule(pattern='output.weight', format='keep')]
    """
    if rules is None:
        return []
    if isinstance(rules, (str, bytes)) or not isinstance(rules, Iterable):
        raise TypeError(f"map: expected a dict or a list of 'pattern=format', got {rules!r}")
    pairs = rules.items() if isinstance(rules, Mapping) else map(_split, rules)
    return [_rule(pattern, fmt) for pattern, fmt in pairs]


def _split(text: str) -> tuple[str, str]:
    if not isinstance(text, str) or "=" not in text:
        raise ValueError(f"map: expected 'pattern=format', got {text!r}")
    pattern, _, fmt = text.rpartition("=")
    return pattern, fmt


def _rule(pattern: str, fmt: str) -> Rule:
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"map: expected a pattern of names, got {pattern!r}")
    if fmt in (KEEP, DROP):
        return Rule(pattern, fmt)
    return Rule(pattern, target_format(fmt, f"map: {quoted(pattern)}").name)


def is_quantizable(info: TensorInfo) -> bool:
    """Whether a tensor can be quantized at all: real numbers, in two dimensions or more after any leading ones."""
    dims = list(dropwhile(lambda dim: dim == 1, info.shape))
    return len(dims) >= 2 and not is_unknown(info.format) and whole_number_dtype(info.format) is None


def is_kept_by_name(info: TensorInfo) -> bool:
    """Whether a tensor of this name stays as it is unless a rule says otherwise.

    One that is stored as codes beside scales is a weight, whatever its name: gpt-oss has ``experts.down_proj``.
    """
    is_weight = bool(info.parts) or info.name.endswith("weight")
    return not is_weight or any(part in info.name for part in KEPT_NAMES)


def applies(rule: Rule, info: TensorInfo) -> bool:
    """Whether a rule says what becomes of a tensor, as far as the rules before it do not."""
    if not rule.matches(info.name) or rule.format in (KEEP, DROP):
        return rule.matches(info.name)
    return is_quantizable(info) and (rule.means(info.name) or not is_kept_by_name(info))


def choose(info: TensorInfo, default: str, rules: Sequence[Rule]) -> str:
    """The format for a tensor, ``"keep"`` or ``"drop"``, before any fallback."""
    for rule in rules:
        if applies(rule, info):
            return rule.format
    return default if is_quantizable(info) and not is_kept_by_name(info) else KEEP


def fit(fmt: str, columns: int) -> str:
    """`fmt`, or what it gives way to where rows of `columns` elements are no whole blocks of it.

    >>> fit("q4_k", 512), fit("q4_k", 96), fit("q4_k", 100), fit("q8_0", 100)
    ('q4_k', 'q5_0', 'f16', 'f16')
    """
    for candidate in (fmt, FALLBACKS.get(fmt, LAST_FALLBACK)):
        if columns % _formats.get(candidate).elements == 0:
            return candidate
    return LAST_FALLBACK
