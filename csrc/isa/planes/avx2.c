/* Planes in AVX2. */
#include "../target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx2,fma,f16c")
#include "../../word/avx2.h"
#include "../../lanes/avx2.h"
#include "../../planes/all.h"

const cbq_plane_kernels cbq_planes_avx2 = CBQ_PLANE_TABLE;
CBQ_TARGET_END
#endif
