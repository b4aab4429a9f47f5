/* Planes in NEON. */
#include "../target.h"
#if CBQ_ARM
#include "../../word/neon.h"
#include "../../lanes/neon.h"
#include "../../planes/all.h"

const cbq_plane_kernels cbq_planes_neon = CBQ_PLANE_TABLE;
#endif
