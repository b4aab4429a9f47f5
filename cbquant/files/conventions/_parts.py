"""The tensors of a file as conventions look at them: by name, dtype and shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from cbquant.files._info import TensorInfo
from cbquant.files._text import quoted
from cbquant.files.conventions._recipe import Misfit, Note, Reader, Recipe, Tile, dtype_of

#: Bytes of a short text that is read when a file is opened.
_MAX_TEXT = 1 << 16

#: Dtypes whose bytes may hold two codes of four bits.
_NIBBLES = ("U8", "I8")


class Options(NamedTuple):
    """What a caller of `cbquant.open` knows of a file that the file does not say."""

    tile: Tile = (128, 128)
    unscaled_fp8: bool = False


class Parts:
    """The tensors of a file as they are stored.

    Attributes
    ----------
    options : Options
        What the caller said.
    keys : collection of str
        The keys of the file's own metadata.
    """

    def __init__(
        self, infos: Mapping[str, TensorInfo], read: Reader, options: Options, keys: Collection[str] = ()
    ) -> None:
        self._infos, self._read, self.options, self.keys = infos, read, options, keys

    def find(self, name: str) -> TensorInfo | None:
        """The tensor of that name, if there is one."""
        return self._infos.get(name)

    def need(self, name: str, owner: str) -> TensorInfo:
        """The tensor of that name, without which the weight `owner` is not whole."""
        found = self._infos.get(name)
        if found is None:
            raise Misfit(owner, f"its part {quoted(name)} is missing")
        return found

    def text(self, part: TensorInfo, owner: str) -> bytes:
        """The bytes of a short part."""
        if part.nbytes > _MAX_TEXT:
            raise Misfit(owner, f"{quoted(part.name)}: expected at most {_MAX_TEXT} bytes, got {part.nbytes}")
        return self._read(part).tobytes()


#: What reads a convention: given `Parts` and a name less the suffix, see `Convention`.
Reading = Callable[[Parts, str], Recipe | Note | None]


class Convention(NamedTuple):
    """How weights of one kind are named.

    Attributes
    ----------
    suffix : str
        What the name of the part that tells the convention ends in.
    read : callable
        Given `Parts` and the name less the suffix, it returns a `Recipe`; a `Note` about what is not known; None
        where the names are only similar; or it raises `Misfit`.
    """

    suffix: str
    read: Reading


def nibble_shape(codes: TensorInfo) -> tuple[int, ...] | None:
    """The shape in bytes of codes of four bits; None where they are of another dtype."""
    dtype = dtype_of(codes)
    if dtype in _NIBBLES and codes.shape:
        return codes.shape
    if dtype == "F4" and codes.shape and codes.shape[-1] % 2 == 0:
        return (*codes.shape[:-1], codes.shape[-1] // 2)
    return None


def described(part: TensorInfo) -> str:
    """A part's name, dtype and shape, for messages."""
    return f"{quoted(part.name)} is {dtype_of(part)} {part.shape}"


def is_grouped(scales: tuple[int, ...], codes: tuple[int, ...], group: int) -> bool:
    """Whether shapes are those of scales [..., K / group] and codes [..., K]."""
    return len(scales) == len(codes) > 0 and (*scales[:-1], scales[-1] * group) == codes
