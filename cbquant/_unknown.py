"""Names for the types of tensors in files that cbquant does not know."""

from __future__ import annotations

_UNKNOWN = "unknown_"

#: The dtypes of safetensors whose codes are numbers, once it is said that they have no scales.
FP8_DTYPES = ("F8_E4M3", "F8_E5M2")


def unknown_name(tag: int | str) -> str:
    """The format name of a tensor whose GGUF type tag, or dtype of safetensors, cbquant does not know."""
    return f"{_UNKNOWN}{tag}"


def is_unknown(fmt: str) -> bool:
    """Whether `fmt` is a name that `unknown_name` made."""
    return fmt.startswith(_UNKNOWN)


def unknown_kind(fmt: str) -> str:
    """What the name that `unknown_name` made stands for: ``"GGUF type 99"``, ``"dtype F4"``."""
    tag = fmt[len(_UNKNOWN) :]
    return f"GGUF type {tag}" if tag.isdigit() else f"dtype {tag}"


def is_unscaled_fp8(fmt: str) -> bool:
    """Whether `fmt` is the name of FP8 whose scales were not found."""
    return fmt in map(unknown_name, FP8_DTYPES)
