"""The public functions: shapes, buffers, outputs, and what they say about bad arguments."""

from __future__ import annotations

import array
import doctest
import importlib
import mmap
import re
import sys
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant import _core
from tests.paths import BLOCK_FORMATS

Q8 = bytes.fromhex("003c") + bytes(range(32))  # q8_0: the scale 1.0, codes 0..31


def raises(error: type[Exception], text: str):  # type: ignore[no-untyped-def]
    return pytest.raises(error, match=re.escape(text))


# ---- shapes ----


def test_shape_is_that_of_the_bytes_unless_given() -> None:
    flat = np.frombuffer(Q8 * 12, np.uint8)
    assert cbquant.dequant(flat, "q8_0").shape == (384,)
    assert cbquant.dequant(flat.reshape(3, 2, 68), "q8_0").shape == (3, 2, 64)
    assert cbquant.dequant(flat.reshape(34, 12), "q8_0").shape == (384,)  # no whole blocks in a row of 12
    assert cbquant.dequant(flat, "q8_0", shape=(4, 96)).shape == (4, 96)
    assert cbquant.dequant(flat, "q8_0", shape=384).shape == (384,)
    assert cbquant.dequant(flat, "q8_0", shape=np.array([4, 96])).shape == (4, 96)
    assert cbquant.dequant(b"", "q8_0").shape == (0,)
    assert cbquant.dequant(b"", "q4_k", shape=(0, 256)).shape == (0, 256)
    assert cbquant.dequant(b"", "q4_k", shape=(5, 0)).shape == (5, 0)
    assert cbquant.dequant(np.zeros((0, 34), np.uint8), "q8_0").shape == (0, 32)


@pytest.mark.parametrize(
    ("shape", "error", "text"),
    [
        ((2, 128), ValueError, "shape (2, 128): last dimension 128 is not a multiple of 256 (q4_k)"),
        ((3, 256), ValueError, "buf: expected 432 bytes for shape (3, 256) of q4_k, got 288"),
        ((-1, 256), ValueError, "shape: expected dimensions from 0 up, got (-1, 256)"),
        ((2**40, 2**40), ValueError, "is larger than any array can be"),
        ((0, 2**62), ValueError, "is larger than any array can be"),
        ((1,) * 33, ValueError, "is larger than any array can be"),
        ((), ValueError, "shape: expected at least one dimension for q4_k, got ()"),
        ((2.0, 256), TypeError, "shape: expected a whole number or a sequence of them, got (2.0, 256)"),
        ("ab", TypeError, "shape: expected a whole number or a sequence of them, got 'ab'"),
    ],
)
def test_bad_shapes(shape: Any, error: type[Exception], text: str) -> None:
    with raises(error, text):
        cbquant.dequant(bytes(288), "q4_k", shape=shape)


@pytest.mark.parametrize("fmt", [f.name for f in BLOCK_FORMATS])
def test_bytes_must_be_whole_blocks(fmt: str) -> None:
    size = cbquant._formats.get(fmt).bytes
    for n in (1, size - 1, size + 1, 5 * size - 1):
        with raises(ValueError, f"buf: {n} bytes are not a multiple of {size} (one block of {fmt})"):
            cbquant.dequant(bytes(n), fmt)
        with raises(ValueError, f"buf: {n} bytes are not a multiple of {size} (one block of {fmt})"):
            cbquant.validate(bytes(n), fmt)


# ---- buffers ----


def buffers() -> dict[str, Any]:
    writable = np.frombuffer(Q8, np.uint8).copy()
    read_only = writable.copy()
    read_only.flags.writeable = False
    area = mmap.mmap(-1, 34)
    area[:] = Q8
    record = np.dtype([("d", "<f2"), ("qs", "i1", 32)])
    return {
        "bytes": Q8,
        "bytearray": bytearray(Q8),
        "memoryview": memoryview(Q8),
        "memoryview of chars": memoryview(Q8).cast("c"),
        "array": array.array("B", Q8),
        "mmap": area,
        "uint8": writable,
        "int8": writable.view(np.int8),
        "read-only": read_only,
        "records": writable.view(record),
        "void": writable.view("V34"),
        "2-D": writable.reshape(1, 34),
        "strided": np.repeat(writable, 3)[::3],
        "reversed": writable[::-1].copy()[::-1],
        "Fortran order": np.asfortranarray(writable.reshape(2, 17)),
    }


@pytest.mark.parametrize("kind", buffers())
def test_any_buffer_will_do(kind: str) -> None:
    decoded = cbquant.dequant(buffers()[kind], "q8_0", shape=32)
    assert decoded.tolist() == list(range(32))


def test_strided_records_with_gaps() -> None:
    """A copy of such an array field by field would leave the bytes between the fields as they were."""
    blocks = np.frombuffer(Q8 * 6, np.uint8)
    gaps = blocks.view(np.dtype({"names": ["d"], "formats": ["<f2"], "offsets": [0], "itemsize": 34}))
    for view in (gaps[::2], gaps.reshape(2, 3).T, blocks.view([("d", "<f2"), ("qs", "i1", 32)])[["d"]][::2]):
        assert (cbquant.dequant(view, "q8_0").reshape(-1, 32) == np.arange(32)).all()
    assert cbquant.dequant(blocks.view([("d", "<f2"), ("qs", "i1", 32)]).view(np.recarray), "q8_0").size == 192


def test_memory_mapped_file(tmp_path: Path) -> None:
    file = tmp_path / "blocks"
    file.write_bytes(b"x" + Q8)
    mapped = np.memmap(file, np.uint8, mode="r", offset=1)
    assert cbquant.dequant(mapped, "q8_0").tolist() == list(range(32))


def test_an_object_with_dlpack_will_do() -> None:
    class Tensor:
        def __init__(self, data: np.ndarray) -> None:
            self.data = data

        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.data.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    tensor = Tensor(np.frombuffer(Q8, np.uint8).copy())
    assert cbquant.dequant(tensor, "q8_0").tolist() == list(range(32))


def test_plain_arrays_are_taken_as_they_are() -> None:
    assert cbquant.dequant(np.array([1.5, -2], np.float16), "f16").tolist() == [1.5, -2.0]
    assert cbquant.dequant(np.array([[1, 2]], np.int64), "i64").tolist() == [[1.0, 2.0]]
    assert cbquant.dequant(np.array([3], ml_dtypes.bfloat16), "bf16").tolist() == [3.0]
    assert cbquant.dequant(np.array([0.1]), "f64")[0] == np.float32(0.1)


@pytest.mark.parametrize(
    ("buf", "fmt", "error", "text"),
    [
        (
            np.zeros(34, np.float32),
            "q8_0",
            TypeError,
            "buf: expected the bytes of q8_0 blocks (uint8), got dtype float32",
        ),
        (
            np.zeros(34, np.uint16),
            "q8_0",
            TypeError,
            "got dtype uint16; use .view(np.uint8) if these are bytes",
        ),
        (np.zeros(34, bool), "q8_0", TypeError, "got dtype bool"),
        (np.zeros(34, object), "q8_0", TypeError, "got dtype object"),
        (np.zeros(34, [("a", object)]), "q8_0", TypeError, "buf: expected the bytes of q8_0"),
        (np.zeros(4, ml_dtypes.bfloat16), "f16", TypeError, "got dtype bfloat16"),
        (np.zeros(8, ">f4"), "f32", ValueError, "buf: expected little-endian bytes, got dtype >f4"),
        (np.zeros(1, [("d", ">f2"), ("q", "i1", 32)]), "q8_0", ValueError, "buf: expected little-endian bytes"),
        (
            np.zeros(1, [("a", [("d", ">f2", (1,))]), ("q", "i1", 32)]),
            "q8_0",
            ValueError,
            "buf: expected little-endian",
        ),
        (np.zeros(8, ">u2"), "q8_0", ValueError, "buf: expected little-endian bytes, got dtype >u2"),
        ([1, 2, 3], "q8_0", TypeError, "buf: expected bytes, a buffer or an array, got list"),
        (None, "q8_0", TypeError, "buf: expected bytes, a buffer or an array, got NoneType"),
        ("text", "q8_0", TypeError, "buf: expected bytes, a buffer or an array, got str"),
    ],
)
def test_bad_buffers(buf: Any, fmt: str, error: type[Exception], text: str) -> None:
    with raises(error, text):
        cbquant.dequant(buf, fmt)


# ---- out and dtype ----


def test_out_is_filled_and_returned() -> None:
    for dtype in ("float32", "float16", ml_dtypes.bfloat16):
        out = np.full((2, 32), 7, dtype)
        assert cbquant.dequant(Q8 * 2, "q8_0", shape=(2, 32), dtype=dtype, out=out) is out
        assert out[1].astype(int).tolist() == list(range(32))


def test_out_decides_where_the_rest_is_left_open() -> None:
    out = np.empty((2, 32), np.float16)
    assert cbquant.dequant(Q8 * 2, "q8_0", out=out) is out
    assert out[1].tolist() == list(range(32))
    bits = np.empty(32, np.uint16)
    cbquant.dequant(Q8, "q8_0", dtype="bfloat16", out=bits)
    assert bits.view(ml_dtypes.bfloat16).astype(int).tolist() == list(range(32))


def test_dtype_may_be_a_numpy_type() -> None:
    for dtype in (np.float32, np.dtype(np.float32), "f4"):
        assert cbquant.dequant(Q8, "q8_0", dtype=dtype).dtype == np.float32
    assert cbquant.dequant(Q8, "q8_0", dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16


def read_only(shape: int) -> np.ndarray:
    out = np.empty(shape, np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (np.empty(31, np.float32), ValueError, "out: expected shape (32,), got (31,)"),
        (np.empty(33, np.float32), ValueError, "out: expected shape (32,), got (33,)"),
        (np.empty((1, 31), np.float32), ValueError, "out: expected shape (32,), got (1, 31)"),
        (np.empty((2, 16), np.float32), ValueError, "out: expected shape (32,), got (2, 16)"),
        (np.empty(64, np.float32)[::2], ValueError, "out: expected a C-contiguous array, got a strided one"),
        (read_only(32), ValueError, "out: expected a writable array, got a read-only one"),
        (np.empty(32, np.float64), TypeError, "out: expected dtype float32, got float64"),
        (np.empty(32, ">f4"), ValueError, "out: expected native byte order, got dtype >f4"),
        (bytearray(128), TypeError, "out: expected an ndarray, got bytearray"),
    ],
)
def test_bad_outputs(out: Any, error: type[Exception], text: str) -> None:
    with raises(error, text):
        cbquant.dequant(Q8, "q8_0", out=out)


def test_out_of_another_dtype_than_asked() -> None:
    with raises(TypeError, "out: expected dtype float16, got float32"):
        cbquant.dequant(Q8, "q8_0", dtype="float16", out=np.empty(32, np.float32))


def test_out_must_not_overlap() -> None:
    memory = np.zeros(34 * 4, np.uint8)
    with raises(ValueError, "out: expected memory of its own, it overlaps buf"):
        cbquant.dequant(memory[:34], "q8_0", out=memory[4:132].view(np.float32))
    with raises(ValueError, "out: expected memory of its own, it overlaps buf"):
        cbquant.dequant(memory[:68:2], "q8_0", out=memory[4:132].view(np.float32))
    beside = np.zeros(34 + 128, np.uint8)
    cbquant.dequant(beside[:34], "q8_0", out=beside[34:].view(np.float32))


def test_a_failed_call_writes_nothing() -> None:
    out = np.full(32, 7, np.float32)
    with pytest.raises(ValueError, match="buf"):
        cbquant.dequant(Q8[:-1], "q8_0", out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", ["float64", "int8", np.int32, "float99", object(), None])
def test_bad_dtypes(dtype: Any) -> None:
    with raises(TypeError, "dtype: expected float32, float16, bfloat16, got"):
        cbquant.dequant(Q8, "q8_0", dtype=dtype)


def test_bfloat16_without_ml_dtypes_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with raises(ImportError, 'pip install "cbquant[bf16]"'):
        cbquant.dequant(Q8, "q8_0", dtype="bfloat16")
    out = np.empty(32, np.uint16)
    assert cbquant.dequant(Q8, "q8_0", dtype="bfloat16", out=out) is out


# ---- formats, threads ----


@pytest.mark.parametrize(
    ("name", "close"), [("iq4xs", "iq4_xs"), ("q4k", "q4_k"), ("mxfp", "mxfp4"), ("Q4_KK", "q4_k")]
)
def test_unknown_format_lists_close_names(name: str, close: str) -> None:
    for function in (cbquant.dequant, cbquant.validate):
        with raises(ValueError, f"fmt: unknown format {name!r}; did you mean ") as caught:
            function(b"", name)
        assert close in str(caught.value)


def test_format_names() -> None:
    assert cbquant.dequant(Q8, "Q8_0").size == 32
    with raises(ValueError, "fmt: unknown format 'zzzzzz'; cbquant.formats() lists them"):
        cbquant.dequant(b"", "zzzzzz")
    with raises(TypeError, "fmt: expected the name of a format, got int"):
        cbquant.dequant(b"", 8)  # type: ignore[arg-type]
    assert cbquant.dequant(Q8, gguf.GGMLQuantizationType.Q8_0).size == 32  # type: ignore[arg-type]
    with raises(ValueError, "fmt: unknown format 'Q4_K_M'; a mixture of formats; q4_k is one"):
        cbquant.dequant(b"", "Q4_K_M")


@pytest.mark.parametrize("threads", [0, -1, 513, 2**70])
def test_threads_out_of_range(threads: int) -> None:
    with raises(ValueError, f"threads: expected 1 to 512, got {threads}"):
        cbquant.dequant(Q8, "q8_0", threads=threads)
    with raises(ValueError, f"n: expected 1 to 512, got {threads}"):
        cbquant.set_num_threads(threads)


@pytest.mark.parametrize("threads", [1.0, "2", True, [1], np.array([1, 2])])
def test_threads_of_a_wrong_type(threads: Any) -> None:
    with raises(TypeError, "threads: expected a whole number from 1, got"):
        cbquant.dequant(Q8, "q8_0", threads=threads)


def test_formats_print_as_a_table() -> None:
    formats = cbquant.formats()
    lines = repr(formats).splitlines()
    assert len(lines) == len(formats) + 1
    assert lines[0].split()[:3] == ["name", "tag", "elements"]
    assert formats._repr_html_().count("<tr>") == len(formats) + 1
    assert {f.name for f in BLOCK_FORMATS} >= set(cbquant.testing.names())
    assert [f.tag for f in formats] == sorted({f.tag for f in formats}), "two formats have one tag"
    assert {f.name for f in formats if f.needs_imatrix} >= {"iq2_xxs", "iq2_xs", "iq1_s"}


def test_formats_agree_with_gguf() -> None:
    gguf = pytest.importorskip("gguf")
    known = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    shared = [f for f in cbquant.formats() if f.tag in known]
    assert len(shared) >= 30
    for f in shared:
        assert known[f.tag] == (f.elements, f.bytes), f.name
        assert gguf.GGMLQuantizationType(f.tag).name.lower() == f.name


def test_info_prints_as_a_table() -> None:
    info = cbquant.info()
    assert set(info) >= {"version", "numpy", "isa", "kernels", "isa_available", "threads", "cuda"}
    assert len(repr(info).splitlines()) == len(info)
    assert info._repr_html_().count("<tr>") == len(info)


# ---- the low level, which must be safe too ----


def test_core_checks_its_arguments() -> None:
    source, out = np.frombuffer(Q8, np.uint8), np.empty(32, np.float32)
    with raises(TypeError, "buf: expected a NumPy array, got bytes"):
        _core.dequant(Q8, "q8_0", out)
    with raises(TypeError, "out: expected an array of numbers, got one of Python objects"):
        _core.dequant(source, "q8_0", np.empty(16, object))
    with raises(ValueError, "buf: expected a C-contiguous array"):
        _core.dequant(np.zeros(68, np.uint8)[::2], "q8_0", out)
    with raises(ValueError, "out: expected 128 bytes for 1 blocks of q8_0, got 124"):
        _core.dequant(source, "q8_0", out[:-1])
    with raises(ValueError, "dtype: expected float32, float16 or bfloat16, got 'f8'"):
        _core.dequant(source, "q8_0", out, "f8")
    with raises(ValueError, "fmt: unknown format 'nope'"):
        _core.dequant(source, "nope", out)
    with raises(ValueError, "CBQUANT_ISA: expected one of"):
        _core.dequant(source, "q8_0", out, "float32", 1, "sse9")
    with raises(ValueError, "name: there is no table 'nope'"):
        _core.table("nope")
    with raises(ValueError, "mask: expected 1 bytes, got 2"):
        _core.nonfinite(source, "q8_0", np.empty(2, np.uint8))


# ---- documentation ----


@pytest.mark.parametrize(
    "name",
    ["cbquant", "cbquant._api", "cbquant._formats", "cbquant._rope", "cbquant.tensor", "cbquant.files",
     "cbquant.reference", "cbquant.testing"],
)  # fmt: skip
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
