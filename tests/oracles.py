"""The real ggml as an oracle, through ctypes: the ``libggml-base`` of PyPI's ``pywhispercpp`` wheel.

ggml needs no initialisation for what is called here: its half-precision conversions are computed, and the
tables of the encoders are made on the first use by ``ggml_quantize_chunk``. A wrong type or size would
abort the process, so every call is checked before it is made.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import struct
import tempfile
from pathlib import Path

import numpy as np

from cbquant import testing

_SHARED_VECTORS = Path(__file__).resolve().parents[2] / "shared" / "vectors"


def full_vectors(fmt: str) -> list[testing.Case]:
    """The decoding cases of a format: of the whole set in a folder ``shared`` beside the repository where
    there is one, else of the part of it that is in the package."""
    path = _SHARED_VECTORS / f"{fmt}.npz"
    if not path.exists():
        return testing.vectors(fmt)
    with np.load(path, allow_pickle=False) as arrays:
        cases = []
        for name in (key.removeprefix("blocks_") for key in arrays if key.startswith("blocks_")):
            blocks, values = arrays[f"blocks_{name}"], arrays[f"f32_{name}"]
            cases.append(testing.Case(name, blocks, values.reshape(len(blocks), -1)))
        return cases


class _TypeTraits(ctypes.Structure):
    """``struct ggml_type_traits`` of ggml/include/ggml.h."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
        ("from_float_ref", ctypes.c_void_p),
    )


class _GgufInitParams(ctypes.Structure):
    """``struct gguf_init_params`` of ggml/include/gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def _library_paths() -> list[Path]:
    """The files of the installed wheel that are libggml-base, by any platform's name for it."""
    try:
        files = importlib.metadata.files("pywhispercpp") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = (Path(str(file.locate())) for file in files if "ggml-base" in file.name)
    return [path for path in found if path.exists()]


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The first of these files that can be opened: one of them may lack a library that it was linked with."""
    for path in _library_paths():
        try:
            lib = ctypes.CDLL(str(path))
        except OSError:
            continue
        lib.ggml_get_type_traits.restype = ctypes.POINTER(_TypeTraits)
        lib.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
        lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        lib.ggml_quantize_chunk.argtypes = (
            *(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
            *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
        )
        lib.gguf_init_from_file.restype = ctypes.c_void_p
        lib.gguf_init_from_file.argtypes = (ctypes.c_char_p, _GgufInitParams)
        lib.gguf_free.argtypes = (ctypes.c_void_p,)
        lib.ggml_log_set.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        return lib
    return None


_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_no_log = _LogCallback(lambda level, text, data: None)


@functools.cache
def _is_type(tag: int) -> bool:
    """True where the library opens a GGUF file with an empty tensor of this type.

    Nothing else of its interface tells which types it has: a release build looks past the end of its table
    for a tag that it does not know.
    """
    lib = _library()
    if lib is None:
        return False
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)  # version, tensors, keys
    tensor = struct.pack("<Q1sIQIQ", 1, b"t", 1, 0, tag, 0)  # name, one dimension of 0 elements, type, offset
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.gguf"
        path.write_bytes(header + tensor + bytes(64))
        lib.ggml_log_set(_no_log, None)
        context = lib.gguf_init_from_file(str(path).encode(), _GgufInitParams(True, None))
        lib.ggml_log_set(None, None)
    if context:
        lib.gguf_free(context)
    return bool(context)


class Ggml:
    """Decoders and encoders of ggml, by GGUF tag, which is ggml's type number: 14 is q6_K."""

    def __init__(self) -> None:
        lib = _library()
        if lib is None:
            raise RuntimeError("no libggml-base: install pywhispercpp")
        self._lib = lib

    @staticmethod
    def available() -> bool:
        """True where the library is installed and can be opened."""
        return _library() is not None

    def knows(self, tag: int) -> bool:
        """True where this build has a decoder for the tag."""
        return _is_type(tag) and bool(self._traits(tag).to_float)

    def type_name(self, tag: int) -> str:
        """ggml's name of the type, such as "q4_K"."""
        return self._traits(tag).type_name.decode()

    def blck_size(self, tag: int) -> int:
        """Elements of a block."""
        return self._traits(tag).blck_size

    def type_size(self, tag: int) -> int:
        """Bytes of a block."""
        return self._traits(tag).type_size

    def to_float(self, tag: int, blocks: np.ndarray) -> np.ndarray:
        """Decode uint8 ``[n, block bytes]`` to float32 ``[n, block elements]``."""
        traits = self._traits(tag)
        if not traits.to_float:
            raise ValueError(f"tag={tag} ({self.type_name(tag)}) has no decoder in ggml")
        if blocks.dtype != np.uint8 or blocks.ndim != 2 or blocks.shape[1] != traits.type_size:
            got = f"{blocks.dtype} {blocks.shape}"
            raise ValueError(f"blocks: expected uint8 [n, {traits.type_size}], got {got}")
        # A copy: ggml reads aligned structs, and a view may begin anywhere.
        source = np.ascontiguousarray(blocks).copy()
        out = np.empty((len(blocks), traits.blck_size), np.float32)
        if len(blocks):
            _ToFloat(traits.to_float)(source.ctypes.data, out.ctypes.data, out.size)
        return out

    def requires_imatrix(self, tag: int) -> bool:
        """True where the type can only be encoded with an importance matrix."""
        self._traits(tag)
        return self._lib.ggml_quantize_requires_imatrix(tag)

    def quantize_chunk(self, tag: int, x: np.ndarray, imatrix: np.ndarray | None = None) -> np.ndarray:
        """Encode float32 ``[rows, k]`` to uint8 ``[rows, row bytes]``; `imatrix` is float32 ``[k]``."""
        traits = self._traits(tag)
        if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] % traits.blck_size:
            raise ValueError(f"x: expected float32 [rows, k], k whole blocks, got {x.dtype} {x.shape}")
        if not np.isfinite(x).all():
            raise ValueError("x is not finite, which aborts some encoders of ggml")
        if imatrix is not None and (imatrix.dtype != np.float32 or imatrix.shape != x.shape[1:]):
            raise ValueError(f"imatrix: expected float32 {x.shape[1:]}, got {imatrix.dtype} {imatrix.shape}")
        if imatrix is None and self.requires_imatrix(tag):
            raise ValueError(f"tag={tag} ({self.type_name(tag)}) needs an imatrix")
        rows, k = x.shape
        source = np.ascontiguousarray(x)
        weights = None if imatrix is None else np.ascontiguousarray(imatrix)
        out = np.zeros((rows, k // traits.blck_size * traits.type_size), np.uint8)
        pointer = None if weights is None else weights.ctypes.data
        self._lib.ggml_quantize_chunk(tag, source.ctypes.data, out.ctypes.data, 0, rows, k, pointer)
        return out

    def _traits(self, tag: int) -> _TypeTraits:
        if not _is_type(tag):
            raise ValueError(f"tag={tag} is not a type of this build of ggml")
        return self._lib.ggml_get_type_traits(tag).contents


def expected_of_ggml(fmt: str, blocks: np.ndarray, decoded: np.ndarray) -> np.ndarray:
    """What the specification asks for, where ggml decoded uint8 ``[n, block bytes]`` to float32 ``[n,
    elements]``.

    Two differences, both in FP4: ggml keeps E2M1 in an integer table, whose code 8 gives +0.0 where the
    format has -0.0; and it takes mxfp4's scale byte 255 for a power of two where OCP MX 1.0 says NaN.
    """
    if fmt not in ("mxfp4", "nvfp4"):
        return decoded
    run_bytes = 16 if fmt == "mxfp4" else 8
    runs = blocks[:, -decoded.shape[1] // 2 :].reshape(len(blocks), -1, run_bytes)
    codes = np.concatenate([runs & 15, runs >> 4], axis=2).reshape(decoded.shape)
    expected = np.where(codes == 8, np.float32(-0.0), decoded)
    if fmt == "mxfp4":
        expected[blocks[:, 0] == 255] = np.nan
    return expected
