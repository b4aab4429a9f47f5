"""The two tables of sixteen, indexed by a 4-bit code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: The values of iq4_nl and iq4_xs.
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)

_E2M1_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)

#: FP4 E2M1 (OCP Microscaling Formats 1.0): one sign, two exponent and one fraction bits. Code 8 is -0.0.
E2M1: NDArray[np.float32] = np.concatenate([_E2M1_MAGNITUDES, -_E2M1_MAGNITUDES])

IQ4.setflags(write=False)
E2M1.setflags(write=False)
