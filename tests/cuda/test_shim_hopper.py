"""What the shim says of Hopper's instructions, used rightly and wrongly, in every schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cuda.products import from_bf16, to_bf16
from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SOURCE = ROOT / "tests" / "cuda" / "shim_hopper.cu"
SEEDS = range(10)
BUGS = {
    "OVERWRITTEN": "the barrier was overwritten",
    "MISALIGNED": "cu_copy_bulk .* an address is no multiple of 16",
    "ODD_SIZE": "cu_copy_bulk .* the size is no multiple of 16",
    "TO_GLOBAL": "cu_copy_bulk .* the destination is not in shared memory",
    "TOO_MANY": "cu_mbarrier_arrive .* more arrivals than the barrier has",
    "NO_WAIT": "the block ended while 1 copies in bulk were on their way",
    "OTHER_MATRICES": "the four warps do not have the same",
    "MALFORMED": "cu_wgmma_bf16 .* it begins at no multiple of 1024",
    "NOT_SHARED": "cu_wgmma_bf16 .* it is not in shared memory",
    "NOT_DONE": "ended, and did not wait for its products",
}


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([SOURCE], KERNEL_INCLUDES))


@pytest.fixture
def shim(library: Shim, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "9.0x1")
    yield library
    library.sizes.clear()


def sums(shim: Shim, bug: str) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel leaves, and what it should."""
    listed = re.search(r"enum hopper_bug {([^}]*)}", SOURCE.read_text())
    assert listed is not None
    x = to_bf16(np.random.default_rng(1).standard_normal((128, 64)).astype(np.float32))
    chunks = x.reshape(128, 8, 8)
    swizzled = np.stack([chunks[n, np.arange(8) ^ n % 8] for n in range(128)])
    y = shim.empty((64, 128), np.float32)
    margin = np.zeros(8, np.uint16)
    number = [name.strip() for name in listed[1].split(",")].index(bug)
    shim.call("run_hopper", shim.upload(np.append(swizzled, margin)), y, number)
    return y.copy(), np.tile(from_bf16(x[:, :16]).astype(np.float64).sum(1), (64, 1))


def test_a_product_of_what_was_copied(shim: Shim) -> None:
    for seed in SEEDS:
        shim.seed(seed)
        found, expected = sums(shim, "NO_BUG")
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bug", BUGS)
def test_wrong_use_is_an_error_in_every_schedule(shim: Shim, bug: str) -> None:
    if bug == "NO_WAIT":  # where it has not landed at once
        seeds = [seed for seed in SEEDS if _fails(shim, seed, bug)]
        assert len(seeds) > 2
        return
    for seed in SEEDS:
        shim.seed(seed)
        with pytest.raises(ShimError, match=BUGS[bug]):
            sums(shim, bug)


def _fails(shim: Shim, seed: int, bug: str) -> bool:
    shim.seed(seed)
    try:
        sums(shim, bug)
    except ShimError as error:
        return re.search(BUGS[bug], str(error)) is not None
    return False
