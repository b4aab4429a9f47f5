"""What is known of a device, and of the last call."""

from __future__ import annotations

import threading
from typing import Any

from cbquant._api import Info
from cbquant.cuda import _driver

_of_thread = threading.local()


def set_last_kernel(name: str) -> None:
    _of_thread.kernel = name


def last_kernel() -> str | None:
    """The kernel that did the work of this thread's last call; None before the first.

    Returns
    -------
    str or None
        ``"dequant_q4_k_bf16"``, ``"matmul_q4_k_bf16_8"``.

    Examples
    --------
    >>> import cbquant
    >>> cbquant.cuda.last_kernel()
    """
    name: str | None = getattr(_of_thread, "kernel", None)
    return name


def device_info(device: int = 0) -> Info:
    """What is known of a device and of what cbquant was built for.

    Parameters
    ----------
    device : int
        Its index, as CUDA counts.

    Returns
    -------
    dict
        Prints as a table. Keys: available, why_unavailable (None where one is), built_for, cuda (the release that it
        was built with), run_on_gpu (where these kernels have run so far). Where there is a device also driver, device,
        name, compute_capability, multiprocessors, memory_bytes, free_bytes, l2_bytes, shared_bytes.

    Raises
    ------
    ValueError
        There are devices, but not this one.
    CudaError
        The device does not answer.

    Examples
    --------
    >>> import cbquant
    >>> cbquant.cuda.device_info()["run_on_gpu"]
    'not yet run on a GPU'
    """
    native, why = _driver.load(), _driver.why_unavailable()
    info = Info(
        available=why is None,
        why_unavailable=why,
        built_for=native.ARCHITECTURES.split() if native else [],
        cuda=_driver.release(native.RUNTIME) if native else None,
        run_on_gpu=_driver.NOT_RUN,
    )
    if why is None:
        native = _driver.ready("device_info", device)
        info["driver"] = _driver.release(native.versions()[0])
        info["device"] = device
        properties: dict[str, Any] = native.properties(device)
        major, minor = properties.pop("compute_capability")
        info |= {"name": properties.pop("name"), "compute_capability": f"{major}.{minor}", **properties}
    return info
