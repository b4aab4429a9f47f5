/* Stands in for the compiler's <arm_neon.h> in the emulated build of the tests: SIMDe's portable intrinsics (PyPI
   simde-py). */
#pragma once
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/arm/neon.h>
