/* Which instruction sets this build holds, and the pragmas that let one file use one of them. With CBQ_EMULATE (tests
   only) every file is built from portable intrinsics, for instruction sets that the machine lacks. */
#pragma once

#if defined(CBQ_EMULATE)
#define CBQ_X86 1
#define CBQ_ARM 1
#elif defined(__x86_64__)
#define CBQ_X86 1
#define CBQ_ARM 0
#elif defined(__aarch64__)
#define CBQ_X86 0
#define CBQ_ARM 1
#else
#define CBQ_X86 0
#define CBQ_ARM 0
#endif

#define CBQ_PRAGMA(x) _Pragma(#x)
#if defined(CBQ_EMULATE)
#define CBQ_TARGET_BEGIN(features)
#define CBQ_TARGET_END
#elif defined(__clang__)
#define CBQ_TARGET_BEGIN(features) CBQ_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define CBQ_TARGET_END CBQ_PRAGMA(clang attribute pop)
#else
#define CBQ_TARGET_BEGIN(features) CBQ_PRAGMA(GCC push_options) CBQ_PRAGMA(GCC target(features))
#define CBQ_TARGET_END CBQ_PRAGMA(GCC pop_options)
#endif
