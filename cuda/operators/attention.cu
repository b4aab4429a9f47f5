// Attention of one token over a cache, in pieces of the cache whose partial results are merged once: what is called split-KV
// or flash decoding (Dao et al. 2023). attention_few.cuh and attention_many.cuh have the two kernels.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "attention_few.cuh"
#include "attention_many.cuh"

enum { MOST_PIECES = 256 };
static_assert(CBQ_CUDA_MOST_COLUMNS == 8 * OPERATOR_THREADS, "the widest kernel has eight columns for a thread");

extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attend_128(attention_args s) { attend<1>(s); }
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attend_256(attention_args s) { attend<2>(s); }
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attend_512(attention_args s) { attend<4>(s); }
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS, 2) cbq_attend_1024(attention_args s) { attend<8>(s); }
extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) cbq_attend_many_f16_128(attention_args s) { attend_many<CBQ_F16, 8>(s); }
extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) cbq_attend_many_f16_256(attention_args s) { attend_many<CBQ_F16, 16>(s); }
extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) cbq_attend_many_f16_512(attention_args s) { attend_many<CBQ_F16, 32>(s); }
extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) cbq_attend_many_bf16_128(attention_args s) { attend_many<CBQ_BF16, 8>(s); }
extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) cbq_attend_many_bf16_256(attention_args s) { attend_many<CBQ_BF16, 16>(s); }
extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1) cbq_attend_many_bf16_512(attention_args s) { attend_many<CBQ_BF16, 32>(s); }

// A CTA to a head: the pieces relative to the largest logit of all, the sink's among them.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attention_merge(attention_args s) {
    int64_t h = blockIdx.x % s.q.shape[1], b = blockIdx.x / s.q.shape[1], part_size = 2 + s.v.shape[3];
    const float *parts = s.parts + (int64_t)blockIdx.x * s.pieces * part_size;
    float sink = s.sink.data ? get(s.sink, place(s.sink, h)) : -INFINITY, largest = sink;
    for (int i = 0; i < s.pieces; i++) largest = f_max(parts[i * part_size], largest);
    float total = sink == -INFINITY ? 0 : sink == largest ? 1 : f_exp(sink - largest); // 1: infinity - infinity is none
    for (int i = 0; i < s.pieces; i++)
        if (parts[i * part_size + 1] != 0) total = fmaf(parts[i * part_size + 1], f_exp(parts[i * part_size] - largest), total);
    for (int64_t d = threadIdx.x; d < s.v.shape[3]; d += OPERATOR_THREADS) {
        float sum = 0;
        for (int i = 0; i < s.pieces; i++) {
            const float *part = parts + i * part_size;
            if (part[1] != 0) sum = fmaf(part[2 + d], f_exp(part[0] - largest), sum);
        }
        put(s.y, place(s.y, b, h, d), total == 0 ? 0 : sum / total);
    }
}

// ---- the host's part ----

static attention_args lay_out(const cbq_cuda_operands *o) {
    const cbq_cuda_array *a = o->arrays;
    attention_args s = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], (float *)o->workspace, (float)o->numbers[0]};
    int64_t share = s.q.shape[1] / s.k.shape[1], n = s.list.data ? s.list.shape[1] : s.k.shape[2];
    bool many = plan_many(s, o->shared_memory);
    s.chunks = (int)(many ? (share + MANY_HEADS - 1) / MANY_HEADS : (share + HEADS - 1) / HEADS);
    // As many CTAs as multiprocessors hold at a time, each with some tiles.
    int64_t groups = s.q.shape[0] * s.k.shape[1] * s.chunks, ctas = (many ? 1 : 4) * (int64_t)o->processors;
    int64_t wanted = (ctas + groups - 1) / (groups ? groups : 1), most = (n + 127) / 128;
    if (!many) s.stages = 0;
    if (wanted > most) wanted = most;
    s.pieces = (int)(wanted > MOST_PIECES ? MOST_PIECES : wanted < 1 ? 1 : wanted);
    return s;
}
static uint64_t bytes_of_parts(const attention_args *s) {
    return (uint64_t)(s->q.shape[0] * s->q.shape[1] * s->pieces * (2 + s->v.shape[3])) * sizeof(float);
}
static uint64_t attention_workspace(const cbq_cuda_operands *o) {
    attention_args s = lay_out(o);
    return bytes_of_parts(&s);
}

typedef void (*attention_kernel)(attention_args); // by columns of v: up to 128, 256, 512, 1024
static const attention_kernel few[] = {cbq_attend_128, cbq_attend_256, cbq_attend_512, cbq_attend_1024};
static const attention_kernel many[2][3] = {{cbq_attend_many_f16_128, cbq_attend_many_f16_256, cbq_attend_many_f16_512},
                                            {cbq_attend_many_bf16_128, cbq_attend_many_bf16_256, cbq_attend_many_bf16_512}};

static cudaError_t run_attention(const attention_args &s, cudaStream_t stream) {
    int64_t columns = s.v.shape[3], heads = s.q.shape[0] * s.q.shape[1], width = many_pitch(s) - 8;
    if (heads == 0 || columns == 0) return cudaSuccess;
    if (columns > CBQ_CUDA_MOST_COLUMNS) return cudaErrorInvalidValue;
    dim3 ctas = ctas_for(s.q.shape[0] * s.k.shape[1] * s.chunks * s.pieces, 1);
    int size = columns <= 128 ? 0 : columns <= 256 ? 1 : columns <= 512 ? 2 : 3;
    cudaError_t error;
    if (s.stages) error = cu_launch(many[s.k.type == CBQ_BF16][size], ctas, MANY_THREADS, (size_t)many_bytes(s, s.stages, s.is_shared), stream, s);
    else error = cu_launch(few[size], ctas, OPERATOR_THREADS, (size_t)(HEADS * width) * sizeof(float), stream, s);
    return error != cudaSuccess ? error : cu_launch(cbq_attention_merge, ctas_for(heads, 1), OPERATOR_THREADS, 0, stream, s);
}
// q [B, H, D], k [B, Hkv, n, D], v [B, Hkv, n, Dv], q2 [B, H, R], k2 [B, Hkv, n, R] (or neither), sink [H], lengths [B], list [B, n_sel]
// (each or not), y [B, H, Dv]; numbers: scale. An index that is no row of the cache names none.
static cudaError_t attention(const cbq_cuda_operands *o, cudaStream_t stream) { return run_attention(lay_out(o), stream); }

// ---- the query of multi-head latent attention ----

struct absorb_args {
    cbq_cuda_array q, w, y;
};
// y[h] = q[h] . w[h], a column to a thread.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_mla_absorb(absorb_args s) {
    int64_t i = thread_of_grid(), h = i / s.y.shape[1], r = i - h * s.y.shape[1];
    if (h >= s.y.shape[0]) return;
    float sum = 0;
    for (int64_t d = 0; d < s.q.shape[1]; d++) sum = fmaf(get(s.q, place(s.q, h, d)), get(s.w, place(s.w, h, d, r)), sum);
    put(s.y, place(s.y, h, r), sum);
}
// q_nope [H, d], w_uk [H, d, R], y float32 [H, R].
static cudaError_t mla_absorb(const cbq_cuda_operands *o, cudaStream_t stream) {
    absorb_args s = {o->arrays[0], o->arrays[1], o->arrays[2]};
    int64_t elements = s.y.shape[0] * s.y.shape[1];
    return elements == 0 ? cudaSuccess : cu_launch(cbq_mla_absorb, ctas_for(elements), OPERATOR_THREADS, 0, stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_attention[] = {
    {"attention", 9, 1, attention_workspace, attention},
    {"mla_absorb", 3, 0, NULL, mla_absorb},
    {NULL, 0, 0, NULL, NULL},
};
