/* AVX-512 BF16: pairs of bf16 products, added to float sums in one instruction. Compiled into every x86-64 build; run only
   where the cpu has it. */
#include "target.h"
#if CBQ_X86
CBQ_TARGET_BEGIN("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,bmi2")
#include "../word/avx512.h"
#include "../kernels/tile.h"

CBQ_FN F mac_bf16(F x, F w, F sum) { return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w); }
void cbq_tile_bf16_avx512(const cbq_tile_args *args) { tiles(args, mac_bf16); }
CBQ_TARGET_END
#endif
