"""Who else multiplies: the list of peers, what they need, and which are here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from benchmarks.machine import distribution_version
from benchmarks.matmul import dense, ggml, torch_linear
from benchmarks.matmul.ggml_probe import failure
from benchmarks.matmul.weights import Dense, Operand, Packed


class Peer(NamedTuple):
    """A peer. It multiplies with weights of one of the two kinds."""

    #: What its products are called in rows; all builds of ggml are one family.
    family: str
    #: On PyPI, to be installed.
    package: str
    #: Empty, or why it is not here.
    absent: Callable[[], str]
    version: Callable[[], str]
    packed: Callable[[Packed, ExitStack], list[Operand]] | None = None
    dense: Callable[[Dense, ExitStack], list[Operand]] | None = None
    #: What is here but left out, and why.
    notes: Callable[[], list[str]] = list


def _ggml(label: str, package: str) -> Peer:
    def absent() -> str:
        library = ggml.build(package)
        return library if isinstance(library, str) else ""

    def version() -> str:
        library = ggml.build(package)
        return (
            library if isinstance(library, str) else f"{library.version()} ({package} {distribution_version(package)})"
        )

    def packed(weights: Packed, stack: ExitStack) -> list[Operand]:
        working = (name for name in ggml.arrangements(package) if not failure(package, name))
        found = (ggml.arranged(package, name, weights, stack) for name in working)
        return [replace(operand, name=f"{label} {operand.name}") for operand in found if operand]

    def notes() -> list[str]:
        reasons = {name: failure(package, name) for name in ggml.arrangements(package)}
        return [f"no {label} {name}: it {reason}" for name, reason in reasons.items() if reason]

    return Peer("ggml", package, absent, version, packed=packed, notes=notes)


def _torch_is_absent() -> str:
    return "" if torch_linear.installed() else "not installed"


def _blas_is_absent() -> str:
    return "" if dense.thread_setter() else "its BLAS has no number of threads to set"


#: What --peers names.
PEERS = {
    "ggml": _ggml("ggml", "pywhispercpp"),
    "llama.cpp": _ggml("llama.cpp", "llama-cpp-python"),
    "numpy": Peer("numpy", "numpy", _blas_is_absent, lambda: str(distribution_version("numpy")), dense=dense.load),
    "torch": Peer(
        "torch",
        "torch",
        _torch_is_absent,
        lambda: str(distribution_version("torch")),
        dense=torch_linear.load,
        notes=torch_linear.notes,
    ),
}


def chosen(names: Sequence[str] | None) -> dict[str, Peer]:
    """The peers with these names (the default is all) that are here.

    Raises
    ------
    ValueError
        An unknown name.
    """
    unknown = [name for name in names or () if name not in PEERS]
    if unknown:
        raise ValueError(f"--peers: expected some of {', '.join(PEERS)}, got {unknown[0]!r}")
    return {name: peer for name, peer in PEERS.items() if (names is None or name in names) and not peer.absent()}


def notes(names: Sequence[str] | None) -> list[str]:
    """What is not compared with, and why."""
    wanted = {name: peer for name, peer in PEERS.items() if names is None or name in names}
    absent = [
        f"no {name} (pip install {peer.package}): {peer.absent()}" for name, peer in wanted.items() if peer.absent()
    ]
    return absent + [note for name, peer in wanted.items() if not peer.absent() for note in peer.notes()]
