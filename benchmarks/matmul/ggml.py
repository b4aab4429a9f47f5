"""ggml's products: ``ggml_mul_mat`` on weights as files have them, and on weights that ggml has rearranged for the
processor ("repacked", "AMX"). It rounds x to 8-bit integers where the weights are in blocks."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

from numpy.typing import NDArray

from benchmarks.blocks import Turns
from benchmarks.matmul.ggml_library import Build, InitParams, silent
from benchmarks.matmul.weights import TOLERANCES, Floats, Operand, Packed
from benchmarks.timing import Call

_F32 = 0  # its number as a type
_NODES = 8  # of a graph: more than the three that there are
#: What is there without a rearrangement.
PLAIN = "plain"


@functools.cache
def build(distribution: str) -> Build | str:
    """The build in a package; in its place, why there is none."""
    try:
        return Build(distribution)
    except (ImportError, OSError, AttributeError) as error:
        return str(error)


def arrangements(distribution: str) -> list[str]:
    """The ways in which the build in a package can have weights; none where there is no build."""
    library = build(distribution)
    return [] if isinstance(library, str) else [PLAIN, *library.rearrangements()]


def arranged(distribution: str, arrangement: str, weights: Packed, stack: ExitStack) -> Operand | None:
    """The weights as a build of ggml multiplies with them; None where it cannot.

    Parameters
    ----------
    distribution, arrangement : str
        The package that the build is in, and one of its `arrangements`.
    weights : Packed
    stack : ExitStack
        Frees what ggml has allocated.
    """
    library = build(distribution)
    if isinstance(library, str) or not library.multiplies(weights.fmt):
        return None
    tensors = _Tensors(library, weights, stack)
    if arrangement == PLAIN:
        tensors.share()
        return Operand(PLAIN, tensors.calls, weights.cold.turns, TOLERANCES["q8"])
    if not tensors.rearrange(library.rearrangements()[arrangement]):
        return None
    return Operand(arrangement, tensors.calls, Turns(len(tensors)), TOLERANCES["q8"])


class _Tensors:
    """Tensors of ggml for each copy of the weights."""

    def __init__(self, library: Build, weights: Packed, stack: ExitStack) -> None:
        self._library, self._lib, self._weights, self._stack = library, library.lib, weights, stack
        self._copies = weights.cold.copies
        context = self._context(len(self) * self._lib.ggml_tensor_overhead())
        self._tensors = [self._matrix(context, weights.fmt.tag, weights.n, weights.k) for _ in self._copies]

    def __len__(self) -> int:
        return len(self._copies)

    def _context(self, size: int) -> Any:
        """A context for so many bytes of descriptions, without data."""
        context = self._lib.ggml_init(InitParams(size, None, True))
        self._stack.callback(self._lib.ggml_free, context)
        return context

    def _matrix(self, context: Any, tag: int, rows: int, columns: int) -> Any:
        return self._lib.ggml_new_tensor_2d(context, tag, columns, rows)

    def _put(self, tensor: Any, buffer: Any) -> None:
        """Let the tensor's data be at the beginning of a buffer."""
        self._stack.callback(self._lib.ggml_backend_buffer_free, buffer)
        self._lib.ggml_backend_tensor_alloc(buffer, tensor, self._lib.ggml_backend_buffer_get_base(buffer))

    def _put_at(self, tensor: Any, array: NDArray[Any]) -> None:
        """Let the tensor's data be an array."""
        self._put(tensor, self._lib.ggml_backend_cpu_buffer_from_ptr(array.ctypes.data, array.nbytes))

    def share(self) -> None:
        """The data are the copies that there are."""
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            self._put_at(tensor, copy)

    def rearrange(self, buffer_type: Any) -> bool:
        """The data are copies in buffers of that type; False where it is not for these weights."""
        lib = self._lib
        size = lib.ggml_backend_buft_get_alloc_size(buffer_type, self._tensors[0])
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            self._put(tensor, lib.ggml_backend_buft_alloc_buffer(buffer_type, size))
            if not self._is_for_products(tensor):
                return False
            with silent():
                lib.ggml_backend_tensor_set(tensor, copy.ctypes.data, 0, copy.nbytes)
        return True

    def _is_for_products(self, tensor: Any) -> bool:
        context = self._context(2 * self._lib.ggml_tensor_overhead())
        product = self._lib.ggml_mul_mat(context, tensor, self._matrix(context, _F32, 1, self._weights.k))
        return bool(self._lib.ggml_backend_dev_supports_op(self._library.device, product))

    def calls(self, x: Floats, out: Floats, threads: int) -> list[Call]:
        """A call for each copy: a graph whose only operation is the product."""
        lib = self._lib
        size = 2 * lib.ggml_tensor_overhead() + lib.ggml_graph_overhead_custom(_NODES, False)
        context = self._context(len(self) * size)
        backend = self._library.backend(threads)
        calls: list[Call] = []
        for weights in self._tensors:
            source = self._matrix(context, _F32, *x.shape)
            product = lib.ggml_mul_mat(context, weights, source)
            self._put_at(source, x)
            self._put_at(product, out)
            graph = lib.ggml_new_graph_custom(context, _NODES, False)
            lib.ggml_build_forward_expand(graph, product)
            calls.append(functools.partial(self._compute, backend, graph, (x, out)))
        return calls

    def _compute(self, backend: Any, graph: Any, kept: tuple[Floats, Floats]) -> None:
        """Compute a graph on arrays that are kept for that."""
        status = self._lib.ggml_backend_graph_compute(backend, graph)
        if status:
            raise RuntimeError(f"ggml_backend_graph_compute: status {status}")
