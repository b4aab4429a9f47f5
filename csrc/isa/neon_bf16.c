/* NEON's bfdot: pairs of bf16 products, added to float sums in one instruction. */
#include "target.h"
#if CBQ_ARM
CBQ_ARM_TARGET_BEGIN(bf16)
#include "../word/neon.h"
#include "../kernels/tile.h"

/* In assembly, for clang's header hides the intrinsic unless the whole file may use it. */
CBQ_FN F mac_bf16(F x, F w, F sum) {
#if defined(CBQ_EMULATE)
    return vbfdotq_f32(sum, vreinterpretq_bf16_f32(x), vreinterpretq_bf16_f32(w));
#else
    __asm__("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
#endif
}
void cbq_tile_bf16_neon(const cbq_tile_args *args) { tiles(args, mac_bf16); }
CBQ_TARGET_END
#endif
