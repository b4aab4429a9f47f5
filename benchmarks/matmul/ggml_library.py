"""Builds of ggml, the library of llama.cpp, through ctypes.

Several packages on PyPI carry one. It is opened as libggml-cpu, with which comes the libggml-base that it was linked
with. A wrong type or size would end the process, so that everything is asked for before it is used.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from cbquant._formats import Format
from tests import oracles


class InitParams(ctypes.Structure):
    """``struct ggml_init_params`` of ggml/include/ggml.h."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class _CpuTraits(ctypes.Structure):
    """``struct ggml_type_traits_cpu`` of ggml/include/ggml-cpu.h."""

    _fields_ = (("from_float", c_void_p), ("vec_dot", c_void_p), ("vec_dot_type", c_int), ("nrows", c_int64))


# Results and arguments; handles are void pointers.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ggml_version": (c_char_p,),
    "ggml_log_set": (None, c_void_p, c_void_p),
    "ggml_validate_row_data": (c_bool, c_int, c_void_p, c_size_t),
    "ggml_get_type_traits": (POINTER(oracles._TypeTraits), c_int),
    "ggml_tensor_overhead": (c_size_t,),
    "ggml_graph_overhead_custom": (c_size_t, c_size_t, c_bool),
    "ggml_init": (c_void_p, InitParams),
    "ggml_free": (None, c_void_p),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph_custom": (c_void_p, c_void_p, c_size_t, c_bool),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_backend_buft_name": (c_char_p, c_void_p),
    "ggml_backend_buft_get_alloc_size": (c_size_t, c_void_p, c_void_p),
    "ggml_backend_buft_alloc_buffer": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_buffer_get_base": (c_void_p, c_void_p),
    "ggml_backend_buffer_free": (None, c_void_p),
    "ggml_backend_cpu_buffer_from_ptr": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_tensor_alloc": (c_int, c_void_p, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_reg_dev_get": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_get_type_traits_cpu": (POINTER(_CpuTraits), c_int),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_cpu_reg": (c_void_p,),
}
_ExtraBufferTypes = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)
_LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_no_log = _LogCallback(lambda level, text, data: None)

# How rearrangements are called here, where not as the buffer types that make them.
_WORDS = {"CPU_REPACK": "repacked"}
# Instructions that a build may use, as its functions ``ggml_cpu_has_..`` name them.
_FEATURES = ("avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx_int8", "neon", "dotprod", "matmul_int8")


class Build:
    """A build of ggml, loaded.

    Parameters
    ----------
    distribution : str
        The package that it is in, by its name on PyPI.

    Raises
    ------
    OSError
        There is no such library, or it cannot be loaded.
    ImportError
        There is no such package.
    AttributeError
        It lacks a function, being too old or too new.
    """

    def __init__(self, distribution: str) -> None:
        self.lib = _opened(distribution)
        self.lib.ggml_log_set(_no_log, None)
        self._registry = self.lib.ggml_backend_cpu_reg()
        self.device = self.lib.ggml_backend_reg_dev_get(self._registry, 0)
        self._backends: dict[int, Any] = {}

    def backend(self, threads: int) -> Any:
        """A backend that uses so many threads; it lives as long as the process."""
        if threads not in self._backends:
            self._backends[threads] = self.lib.ggml_backend_cpu_init()
            self.lib.ggml_backend_cpu_set_n_threads(self._backends[threads], threads)
        return self._backends[threads]

    def version(self) -> str:
        """The version, and the instructions that it was compiled for."""
        found = (getattr(self.lib, f"ggml_cpu_has_{name}", None) for name in _FEATURES)
        has = [name for name, function in zip(_FEATURES, found, strict=True) if function and function()]
        return f"{self.lib.ggml_version().decode()} with {' '.join(has)}"

    def multiplies(self, fmt: Format) -> bool:
        """Whether it has the format, under the same number and in blocks of the same size, and a product for it."""
        with silent():
            known = self.lib.ggml_validate_row_data(
                fmt.tag, None, 0
            )  # the only one that knows how many types there are
        if not known:
            return False
        traits = self.lib.ggml_get_type_traits(fmt.tag).contents
        same = (traits.type_name.decode().lower(), traits.blck_size, traits.type_size)
        product = self.lib.ggml_get_type_traits_cpu(fmt.tag).contents.vec_dot
        return same == (fmt.name, fmt.elements, fmt.bytes) and bool(product)

    def rearrangements(self) -> dict[str, Any]:
        """The buffer types that rearrange weights, by what they are called."""
        address = self.lib.ggml_backend_reg_get_proc_address(self._registry, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return {}
        types, found = _ExtraBufferTypes(address)(self.device), {}
        for i in range(_MAX_BUFFER_TYPES):
            if not types or not types[i]:
                break
            name = self.lib.ggml_backend_buft_name(types[i]).decode()
            found[_WORDS.get(name, name)] = types[i]
        return found


@contextmanager
def silent() -> Iterator[None]:
    """What ggml prints on stderr, past its own log function, goes nowhere: a line for each tensor."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# The list ends with a null pointer.
_MAX_BUFFER_TYPES = 16


def _opened(distribution: str) -> ctypes.CDLL:
    """The library, and its functions declared."""
    paths = [file.locate() for file in importlib.metadata.files(distribution) or []]
    path = next((path for path in paths if Path(str(path)).name.startswith("libggml-cpu")), None)
    if path is None:
        raise OSError(f"{distribution} has no libggml-cpu")
    library = ctypes.CDLL(str(path))
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, tuple(arguments)
    return library
