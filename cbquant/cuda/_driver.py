"""The C module, loaded at its first use, and whether it can be used."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import cast

from cbquant.cuda._error import CudaError
from cbquant.cuda._native import Native

#: The module, once something has asked for it. Tests put another one here.
_native: Native | None = None

NOT_BUILT = "cbquant was built without CUDA (pip install with CBQUANT_CUDA=1 says what is missing)"
NOT_RUN = "not yet run on a GPU"


def load() -> Native | None:
    """The module; None where it was not built. The driver is not touched."""
    global _native
    if _native is None and importlib.util.find_spec("cbquant._cuda") is not None:
        _native = cast(Native, importlib.import_module("cbquant._cuda"))
    return _native


def ready(operation: str, device: int = 0) -> Native:
    """The module, where it can be used; a CudaError where not, a ValueError where there is no such device."""
    if isinstance(device, bool) or not hasattr(device, "__index__"):
        raise TypeError(f"device: expected the index of a GPU, got {type(device).__name__}")
    native = load()
    if native is None:
        raise CudaError(operation, "notBuilt", -1, NOT_BUILT)
    try:
        count = native.device_count()
    except CudaError as error:
        raise CudaError(operation, error.name, error.code, sentence(native, error)) from None
    if not 0 <= device < count:
        raise ValueError(f"device: expected 0 to {count - 1}, got {device}")
    return native


def why_unavailable() -> str | None:
    """Why no GPU can be used, in a sentence; None where one can.

    Returns
    -------
    str or None

    Examples
    --------
    >>> import cbquant
    >>> (cbquant.cuda.why_unavailable() is None) == cbquant.cuda.is_available()
    True
    """
    native = load()
    if native is None:
        return NOT_BUILT
    try:
        count = native.device_count()
        capabilities = [native.compute_capability(device) for device in range(count)]
    except CudaError as error:
        return sentence(native, error)
    if not any(runs_on(native.ARCHITECTURES, capability) for capability in capabilities):
        found = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
        return f"cbquant was built for {native.ARCHITECTURES}, and the GPUs have compute capability {found}"
    return None


def is_available() -> bool:
    """Whether there is a GPU that cbquant can use.

    Returns
    -------
    bool
        Where it is False, `why_unavailable` says why.

    Examples
    --------
    >>> import cbquant
    >>> cbquant.cuda.is_available() in (True, False)
    True
    """
    return why_unavailable() is None


def sentence(native: Native, error: CudaError) -> str:
    """What an error of the first call to the driver means."""
    if error.name == "cudaErrorNoDevice":
        return "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it"
    if error.name == "cudaErrorInsufficientDriver":
        driver, runtime = native.versions()
        if driver == 0:
            return "there is no NVIDIA driver: libcuda.so.1 was not found"
        known, needed = release(driver), release(runtime)
        return f"the driver knows CUDA {known}, cbquant was built with {needed}: a newer driver is needed"
    return str(error)


def release(number: int) -> str:
    """12080 is CUDA 12.8."""
    return f"{number // 1000}.{number % 1000 // 10}"


def runs_on(architectures: str, capability: tuple[int, int]) -> bool:
    """Whether a device can run what was built: ``sm_XY`` on X.Y and later ones of X, with a suffix a on X.Y alone and
    with f on those of X; PTX, ``compute_XY``, on X.Y and all later ones (CUDA C++ Programming Guide, 3.1)."""
    number = 10 * capability[0] + capability[1]
    for kind, digits, suffix in re.findall(r"\b(sm|compute)_(\d+)([af]?)\b", architectures):
        built = int(digits)
        same_family = built // 10 == capability[0] and number >= built
        if number == built or (same_family and suffix != "a") or (kind == "compute" and not suffix and number >= built):
            return True
    return False


def description() -> str:
    """What this build has of CUDA, for `cbquant.info`."""
    native = load()
    if native is None:
        return "not built"
    return f"built with CUDA {release(native.RUNTIME)} for {native.ARCHITECTURES}; {NOT_RUN}"
