"""The head of the new file, written by the gguf library: metadata and the list of tensors."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbquant import _formats
from cbquant.convert._plan import Planned
from cbquant.convert.imatrix import Imatrix
from cbquant.files import File, Metadata
from cbquant.files._text import Subject

if TYPE_CHECKING:
    import gguf

_ARCHITECTURE, _ALIGNMENT = "general.architecture", "general.alignment"
_FILE_TYPE, _VERSION = "general.file_type", "general.quantization_version"

#: What belongs to the shards of the source; the new file is one.
_DROPPED_KEYS = ("split.no", "split.count", "split.tensors.count")

#: The keys of safetensors' own metadata are put behind this.
SAFETENSORS_PREFIX = "safetensors."

#: Format -> name in gguf.LlamaFileType, where it is not MOSTLY_ and the format's own: of several mixtures the one
#: that is the format throughout, by llama_ftype_get_default_type in src/llama-quant.cpp of llama.cpp.
_FILE_TYPES = {
    "f32": "ALL_F32",
    "q3_k": "MOSTLY_Q3_K_S",
    "q4_k": "MOSTLY_Q4_K_S",
    "q5_k": "MOSTLY_Q5_K_S",
    "iq2_s": "MOSTLY_IQ2_M",
    "mxfp4": "MOSTLY_MXFP4_MOE",
}


#: More would make a file of a few tensors as large as the padding between them.
_MAX_ALIGNMENT = 1 << 20


class Head(NamedTuple):
    """The bytes before the tensors, without padding; where each tensor begins; the size of the whole file."""

    data: bytes
    offsets: list[int]
    size: int


class _Encoded(NamedTuple):
    """A metadata value as it stood in another file."""

    data: bytes


def load_gguf() -> Any:
    """The gguf library; an ImportError that names the extra."""
    try:
        import gguf
    except ImportError:
        raise ImportError('quantize_file writes with the gguf library: pip install "cbquant[convert]"') from None
    return gguf


def check_writable(library: Any, tensors: Sequence[Planned]) -> None:
    """Raise for the first tensor of a type that this version of the library does not have, as we know it."""
    sizes = {int(kind): tuple(size) for kind, size in library.GGML_QUANT_SIZES.items()}
    for tensor in tensors:
        fmt = _formats.get(tensor.format)
        if sizes.get(fmt.tag) != (fmt.elements, fmt.bytes):
            what = Subject("tensor", tensor.info.name)
            raise ValueError(f"{what}: {fmt.name} cannot be written by the installed version of the gguf library")


def make_head(
    library: Any, file: File, tensors: Sequence[Planned], fmt: str, architecture: str, imatrix: Imatrix | None
) -> Head:
    """The head of a file of these tensors; `fmt` is what the file calls itself."""
    alignment = _alignment(library, file)
    with tempfile.TemporaryDirectory(prefix="cbquant-") as folder:
        path = Path(folder, "head.gguf")
        writer = _writer(library, path)
        writer.data_alignment = alignment
        _add_metadata(library, writer, file, architecture)
        _add_own(library, writer, fmt, imatrix)
        for tensor in tensors:
            kind, nothing = library.GGMLQuantizationType(_formats.get(tensor.format).tag), np.dtype(np.float32)
            writer.add_tensor_info(_text(tensor.info.name), tensor.info.shape, nothing, tensor.nbytes, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        data = path.read_bytes()
    position = _padded(len(data), alignment)
    offsets = []
    for tensor in tensors:
        offsets.append(position)
        position += _padded(tensor.nbytes, alignment)
    return Head(data, offsets, position)


def _alignment(library: Any, file: File) -> int:
    if not isinstance(file.metadata, Metadata) or _ALIGNMENT not in file.metadata:
        return int(library.GGUF_DEFAULT_ALIGNMENT)
    alignment = int(file.metadata[_ALIGNMENT])
    if alignment > _MAX_ALIGNMENT:
        raise ValueError(f"{file.path}: {_ALIGNMENT}: at most {_MAX_ALIGNMENT} is written, got {alignment}")
    return alignment


def _padded(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _text(text: str) -> Any:
    """`text`, or its bytes where they are not UTF-8: the library writes both."""
    data = text.encode("utf-8", "surrogateescape")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    return text


def _writer(library: Any, path: Path) -> gguf.GGUFWriter:
    class Writer(library.GGUFWriter):  # type: ignore[misc]
        """Takes values as another file has them: the library has no empty arrays, nor arrays in arrays."""

        def _pack_val(self, val: Any, vtype: Any, add_vtype: bool, sub_type: Any = None) -> Any:
            if isinstance(val, _Encoded):
                return self._pack("I", vtype) + val.data
            return super()._pack_val(val, vtype, add_vtype, sub_type)

    writer: gguf.GGUFWriter = Writer(path, "")
    writer.kv_data[0].clear()  # the architecture has its place among the source's pairs
    return writer


def _add_metadata(library: Any, writer: gguf.GGUFWriter, file: File, architecture: str) -> None:
    kinds, metadata = library.GGUFValueType, file.metadata
    if not isinstance(metadata, Metadata):
        writer.add_key_value(_ARCHITECTURE, architecture, kinds.STRING)
        for key, value in metadata.items():
            writer.add_key_value(SAFETENSORS_PREFIX + key, value, kinds.STRING)
        return
    for key in metadata:
        if key not in _DROPPED_KEYS:
            kind, data = metadata.encoded(key)
            writer.add_key_value(_text(key), _Encoded(data), kinds(kind))


def _add_own(library: Any, writer: gguf.GGUFWriter, fmt: str, imatrix: Imatrix | None) -> None:
    """What llama.cpp says of a file that it has quantized: in the place of the source's, else at the end."""
    pairs = writer.kv_data[0]

    def put(key: str, value: Any, kind: Any) -> None:
        pairs[key] = library.gguf_writer.GGUFValue(value, kind)

    kinds = library.GGUFValueType
    file_type = getattr(library.LlamaFileType, _FILE_TYPES.get(fmt, f"MOSTLY_{fmt.upper()}"), None)
    if file_type is None:  # this version of the library has no number for it
        pairs.pop(_FILE_TYPE, None)
    else:
        put(_FILE_TYPE, int(file_type), kinds.UINT32)
    put(_VERSION, int(library.GGML_QUANT_VERSION), kinds.UINT32)
    if imatrix is None:
        return
    if imatrix.path is not None:
        put("quantize.imatrix.file", _text(str(imatrix.path)), kinds.STRING)
    if imatrix.datasets:
        put("quantize.imatrix.dataset", _text(imatrix.datasets[0]), kinds.STRING)
    put("quantize.imatrix.entries_count", len(imatrix), kinds.UINT32)
    if imatrix.chunks > 0:
        put("quantize.imatrix.chunks_count", imatrix.chunks, kinds.UINT32)
