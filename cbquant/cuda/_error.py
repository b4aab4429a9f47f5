"""The exception of everything that CUDA refuses."""

from __future__ import annotations


class CudaError(RuntimeError):
    """What CUDA refused, or that there is no CUDA to ask.

    Attributes
    ----------
    operation : str
        What failed.
    name : str
        CUDA's name of the error, ``"cudaErrorMemoryAllocation"``; ``"notBuilt"`` where cbquant was built without CUDA.
    code : int
        CUDA's number of it; -1 where cbquant was built without CUDA.

    Examples
    --------
    >>> from cbquant.cuda import CudaError
    >>> CudaError("allocating 10 bytes", "cudaErrorMemoryAllocation", 2, "out of memory")
    CudaError('allocating 10 bytes: out of memory (cudaErrorMemoryAllocation, 2)')
    """

    def __init__(self, operation: str, name: str, code: int, text: str) -> None:
        super().__init__(f"{operation}: {text} ({name}, {code})")
        self.operation, self.name, self.code, self._text = operation, name, code, text

    def __reduce__(self) -> tuple[type[CudaError], tuple[str, str, int, str]]:
        return type(self), (self.operation, self.name, self.code, self._text)


def not_while_capturing(operation: str, text: str) -> CudaError:
    """What CUDA would say of something that cannot be part of a graph, with what to do instead."""
    return CudaError(operation, "cudaErrorStreamCaptureUnsupported", 900, text)


def copy_while_capturing(operation: str, name: str) -> CudaError:
    """The argument `name` is on the host."""
    return not_while_capturing(operation, f"{name} is an ndarray, whose copy cannot be captured")


def new_while_capturing(operation: str, what: str = "an array is allocated") -> CudaError:
    """There is no `out` on the device."""
    return not_while_capturing(operation, f"{what}, which cannot be captured: pass out= an array on the device")
