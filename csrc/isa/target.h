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
/* A feature of AArch64: each compiler has its spelling. */
#if defined(__clang__)
#define CBQ_ARM_TARGET_BEGIN(feature) CBQ_TARGET_BEGIN(#feature)
#else
#define CBQ_ARM_TARGET_BEGIN(feature) CBQ_TARGET_BEGIN(CBQ_ARM_ARCH(feature))
#define CBQ_ARM_ARCH(feature) CBQ_STRING(arch=armv8.2-a+feature)
#define CBQ_STRING(x) #x
#endif
