/* Planes in plain C: the readable form, and what the others are compared with. */
#include "../../word/scalar.h"
#include "../../lanes/scalar.h"
#include "../../planes/all.h"

const cbq_plane_kernels cbq_planes_scalar = CBQ_PLANE_TABLE;

