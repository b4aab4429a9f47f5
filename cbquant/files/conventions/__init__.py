"""How checkpoints store quantized weights in safetensors: codes and scales under names of their own.

A convention is told by names, dtypes and shapes of the header alone; of bitsandbytes a short JSON is read. One file
here knows one kind of names, and what it knows is in `CONVENTIONS`: a new one is a file with a tuple of `Convention`,
and its line in the list below.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from cbquant._unknown import unknown_name
from cbquant.files._info import TensorInfo
from cbquant.files._plain import NO_TAG
from cbquant.files._text import quoted
from cbquant.files.conventions import bitsandbytes, compressed_tensors, deepseek, fp8, gpt_oss, modelopt, unknown
from cbquant.files.conventions._parts import Convention, Options, Parts
from cbquant.files.conventions._recipe import Misfit, Note, Reader, Recipe, build, dtype_of

__all__ = ["Options", "Recipe", "Weights", "build", "recognise"]

CONVENTIONS: tuple[Convention, ...] = (
    *deepseek.CONVENTIONS,
    *fp8.CONVENTIONS,
    *gpt_oss.CONVENTIONS,
    *compressed_tensors.CONVENTIONS,
    *modelopt.CONVENTIONS,
    *bitsandbytes.CONVENTIONS,
    *unknown.CONVENTIONS,
)

_SUFFIXES = tuple({convention.suffix for convention in CONVENTIONS})


class Weights(NamedTuple):
    """The tensors of a file as a reader of weights sees them.

    Attributes
    ----------
    infos : dict
        All of them, in the order of the file, a weight in the place of its codes.
    recipes : dict
        Of the weights that are put together.
    misfits : dict
        Names of tensors that cannot be given, and why: their parts do not fit together.
    notes : dict
        Names of tensors and a sentence: `misfits`, and what looks like a convention that is not known.
    """

    infos: dict[str, TensorInfo]
    recipes: dict[str, Recipe]
    misfits: dict[str, str]
    notes: dict[str, str]


def recognise(stored: Mapping[str, TensorInfo], read: Reader, options: Options, keys: Collection[str] = ()) -> Weights:
    """Find the weights among the tensors of a file; `keys` are those of its metadata."""
    recipes: dict[str, Recipe] = {}  # by the name of the codes
    misfits: dict[str, str] = {}
    notes: dict[str, str] = {}
    for name, outcome in _outcomes(stored, Parts(stored, read, options, keys)):
        if isinstance(outcome, Note):
            notes[name] = outcome.sentence
        elif isinstance(outcome, Misfit):
            misfits[name] = str(outcome)
        elif name in recipes:
            kinds = " and ".join(quoted(recipe.parts[1].name) for recipe in (recipes[name], outcome))
            misfits[name] = f"it has scales of two kinds, {kinds}"
        else:
            recipes[name] = outcome
    _check_names(stored, recipes, misfits)
    for name in misfits:
        recipes.pop(name, None)
    if options.unscaled_fp8:
        _add_unscaled(stored, recipes, {*misfits, *notes})
    by_name = {recipe.name: recipe for recipe in recipes.values()}
    return Weights(_infos(stored, recipes, misfits), by_name, misfits, {**notes, **misfits})


def _outcomes(stored: Mapping[str, TensorInfo], parts: Parts) -> Iterator[tuple[str, Recipe | Note | Misfit]]:
    """What the conventions say, and the stored tensor that each outcome is about."""
    for name in stored:
        if not name.endswith(_SUFFIXES):
            continue
        for convention in CONVENTIONS:
            if name.endswith(convention.suffix):
                outcome = _outcome(convention, parts, name.removesuffix(convention.suffix))
                if outcome is not None:
                    yield outcome.codes.name if isinstance(outcome, Recipe) else outcome.name, outcome


def _outcome(convention: Convention, parts: Parts, stem: str) -> Recipe | Note | Misfit | None:
    try:
        return convention.read(parts, stem)
    except Misfit as misfit:
        return misfit


def _check_names(stored: Mapping[str, TensorInfo], recipes: Mapping[str, Recipe], misfits: dict[str, str]) -> None:
    """A weight may not have the name of another tensor."""
    owners: dict[str, str] = {}
    for codes, recipe in recipes.items():
        if (recipe.name != codes and recipe.name in stored) or recipe.name in owners:
            misfits[codes] = f"there is another tensor {quoted(recipe.name)} in its place"
        owners.setdefault(recipe.name, codes)


def _add_unscaled(stored: Mapping[str, TensorInfo], recipes: dict[str, Recipe], refused: Collection[str]) -> None:
    taken = {part.name for recipe in recipes.values() for part in recipe.parts}
    for name, info in stored.items():
        if dtype_of(info) in fp8.FORMATS and info.shape and name not in taken and name not in refused:
            fmt, _ = fp8.FORMATS[dtype_of(info)]
            recipes[name] = Recipe(name, fmt, info.shape, info, info.shape)


def _infos(
    stored: Mapping[str, TensorInfo], recipes: Mapping[str, Recipe], misfits: Mapping[str, str]
) -> dict[str, TensorInfo]:
    taken = {part.name for recipe in recipes.values() for part in recipe.parts}
    infos: dict[str, TensorInfo] = {}
    for name, info in stored.items():
        if name in recipes:
            weight = recipes[name].info
            infos[weight.name] = weight
        elif name in misfits:
            infos[name] = info._replace(format=unknown_name(dtype_of(info)), tag=NO_TAG)
        elif name not in taken:
            infos[name] = info
    return infos
