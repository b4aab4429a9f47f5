/* NEON's bfdot: pairs of bf16 products, added to float sums in one instruction. */
#include "target.h"
#if CBQ_ARM
CBQ_TARGET_BEGIN("arch=armv8.2-a+bf16")
#include "../word/neon.h"
#include "../kernels/tile.h"

CBQ_FN F mac_bf16(F x, F w, F sum) { return vbfdotq_f32(sum, vreinterpretq_bf16_f32(x), vreinterpretq_bf16_f32(w)); }
void cbq_tile_bf16_neon(const cbq_tile_args *args) { tiles(args, mac_bf16); }
CBQ_TARGET_END
#endif
