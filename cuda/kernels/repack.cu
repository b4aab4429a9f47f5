// Blocks to fragments and back, and from fragments to values. A CTA has a unit of 64 rows.
//
// Which bit of a block is which bit of a code is asked of the format itself, so that its header stays the only one to know. Of codes
// alone: of the bits that are no codes, the header, fragments keep the bytes.
//
// Not yet run on a GPU: tests run it with threads on the CPU, and the PTX that nvcc makes of it in an interpreter.
#include "decode.cuh"
#include "fragments.cuh"
#include "store.cuh"

#include "../host/kernels.h"
#include <launch.cuh>

struct repack_args {
    uint8_t *blocks, *fragments, *y;
    uint64_t n, k;
};

// The unit of this CTA, and what blocks it has. Units of a tile follow each other, then tiles, then experts.
template <class F> struct unit_of_cta {
    uint64_t row; // of all experts' rows, the first one; the expert's end is `rows` further
    uint64_t block, row_blocks;
    uint32_t rows;
    CU_METHOD unit_of_cta(const repack_args &a) {
        uint64_t units = (a.k + F::unit - 1) / F::unit, tiles = tiles_of_rows(a.n), tile = blockIdx.x / units % tiles;
        uint64_t left = a.n - tile * ROWS;
        rows = left < ROWS ? (uint32_t)left : (uint32_t)ROWS;
        row = blockIdx.x / units / tiles * a.n + tile * ROWS;
        block = blockIdx.x % units * F::blocks;
        row_blocks = a.k / F::elements;
    }
    CU_METHOD bool has(uint32_t in_tile, uint32_t in_unit) const { return in_tile < rows && block + in_unit < row_blocks; }
    CU_METHOD uint64_t at(uint32_t in_tile, uint32_t in_unit) const { return ((row + in_tile) * row_blocks + block + in_unit) * F::bytes; }
};

// The row and the run of a thread: of 2 * parts, the first row's of each half, then the second's.
struct run_of_thread {
    uint32_t half, second, row, run; // run: of the unit
    CU_METHOD run_of_thread(uint32_t i) {
        half = i / 2, second = i % 2;
        row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * second;
        run = half * 4 + threadIdx.x % 4;
    }
};

template <class F> CBQ_FN void pack_unit(const repack_args &a) {
    unit_of_cta<F> u(a);
    uint8_t *to = a.fragments + (uint64_t)blockIdx.x * F::unit_bytes;
#pragma unroll 1
    for (uint32_t i = 0; i < 2 * F::parts; i++) {
        run_of_thread t(i);
        uint32_t words[F::code_bits] = {}, of_block = F::elements / RUN, block = t.run / of_block;
        if (u.has(t.row, block)) {
            const uint8_t *b = a.blocks + u.at(t.row, block);
#pragma unroll
            for (uint32_t e = 0; e < RUN; e++) {
                uint32_t codes = F::codes(b, t.run % of_block, e / 4 * 4), code = codes >> e % 4 * 8;
                if (F::cls == CLASS_BYTES) code ^= 128;
#pragma unroll
                for (uint32_t bit = 0; bit < F::code_bits; bit++) words[F::place(e, bit).word] |= (code >> bit & 1) << F::place(e, bit).bit;
            }
        }
#pragma unroll
        for (uint32_t w = 0; w < F::code_bits; w++)
            *(uint32_t *)(to + t.half * F::codes_bytes + F::word_at(threadIdx.x, t.second * F::code_bits + w)) = words[w];
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < ROWS * F::blocks * F::header; i += THREADS) {
        uint32_t row = i / F::header / F::blocks, block = i / F::header % F::blocks, byte = i % F::header;
        to[F::header_of(row, block) + byte] = u.has(row, block) ? a.blocks[u.at(row, block) + F::header_at + byte] : 0;
    }
}

// For each bit of a block that is a code's: 8 times the element, and the bit of its code. Of the blocks that are looked at, the j-th has
// every bit set whose number has bit j: a bit of a code, in all of them, spells the number of the bit that it is.
template <class F> struct bits_of_codes {
    enum { numbers = 11, block_bytes = (F::bytes + 15) / 16 * 16 };
    static_assert(8 * F::bytes <= 1 << numbers, "a bit's number has so many bits");
    CBQ_FN void find(uint16_t *source, uint8_t *spelled) {
        for (uint32_t i = threadIdx.x; i < numbers * F::bytes; i += THREADS) {
            uint32_t j = i / F::bytes, byte = i % F::bytes;
            spelled[j * block_bytes + byte] = j == 0 ? 0xaa : j == 1 ? 0xcc : j == 2 ? 0xf0 : byte >> (j - 3) & 1 ? 0xff : 0;
        }
        cu_barrier();
#pragma unroll 1
        for (uint32_t c = threadIdx.x; c < F::elements / 4; c += THREADS) {
            uint32_t codes[numbers];
#pragma unroll
            for (uint32_t j = 0; j < numbers; j++) codes[j] = F::codes(spelled + j * block_bytes, c / 8, c % 8 * 4);
#pragma unroll 1
            for (uint32_t i = 0; i < 32; i++) {
                uint32_t number = 0;
                if (i % 8 >= F::code_bits) continue;
#pragma unroll
                for (uint32_t j = 0; j < numbers; j++) number |= (codes[j] >> i & 1) << j;
                source[number] = (uint16_t)(32 * c + i);
            }
        }
        cu_barrier();
    }
};

template <class F> CBQ_FN uint32_t bit_of_code(const uint8_t *unit, uint32_t row, uint32_t e, uint32_t bit) {
    uint32_t thread = row / 16 * 32 + row % 8 * 4 + e % HALF / RUN;
    bit_place p = F::place(e % RUN, bit);
    const uint8_t *word = unit + e / HALF * F::codes_bytes + F::word_at(thread, row % 16 / 8 * F::code_bits + p.word);
    return *(const uint32_t *)word >> p.bit & 1;
}

template <class F> CBQ_FN void unpack_unit(const repack_args &a) {
    __shared__ uint16_t source[8 * F::bytes];
    __shared__ __align__(16) uint8_t spelled[bits_of_codes<F>::numbers * bits_of_codes<F>::block_bytes];
    bits_of_codes<F>::find(source, spelled);
    unit_of_cta<F> u(a);
    const uint8_t *from = a.fragments + (uint64_t)blockIdx.x * F::unit_bytes;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < ROWS * F::blocks * F::bytes; i += THREADS) {
        uint32_t row = i / F::bytes / F::blocks, block = i / F::bytes % F::blocks, byte = i % F::bytes, value = 0;
        if (!u.has(row, block)) continue;
        if (byte - F::header_at < F::header) value = from[F::header_of(row, block) + byte - F::header_at];
        else {
#pragma unroll 1
            for (uint32_t bit = 0; bit < 8; bit++) {
                uint32_t at = source[8 * byte + bit];
                value |= bit_of_code<F>(from, row, block * F::elements + at / 8, at % 8) << bit;
            }
            if (F::cls == CLASS_BYTES) value ^= 128;
        }
        a.blocks[u.at(row, block) + byte] = (uint8_t)value;
    }
}

template <class F, int DTYPE> CBQ_FN void dequant_unit(const repack_args &a) {
    unit_of_cta<F> u(a);
    const uint8_t *from = a.fragments + (uint64_t)blockIdx.x * F::unit_bytes;
#pragma unroll 1
    for (uint32_t i = 0; i < 2 * F::parts; i++) {
        run_of_thread t(i);
        uint32_t words[F::code_bits], of_block = F::elements / RUN, block = t.run / of_block;
        if (!u.has(t.row, block)) continue;
#pragma unroll
        for (uint32_t w = 0; w < F::code_bits; w++)
            words[w] = *(const uint32_t *)(from + t.half * F::codes_bytes + F::word_at(threadIdx.x, t.second * F::code_bits + w));
        const uint8_t *b = from + F::header_of(t.row, block) - F::header_at; // the functions of a format take a block
        uint64_t y = (u.row + t.row) * a.k + (u.block + block) * F::elements + t.run % of_block * RUN;
#pragma unroll
        for (uint32_t eight = 0; eight < 4; eight++) {
            float s, m, x[8];
            group_scale<F>(b, (t.run % of_block * RUN + 8 * eight) / F::group, s, m);
#pragma unroll
            for (uint32_t c = 0; c < 2; c++) {
                uint32_t codes = F::cls == CLASS_BYTES ? 0x80808080u : 0;
#pragma unroll
                for (uint32_t bit = 0; bit < 4 * F::code_bits; bit++) {
                    bit_place p = F::place(8 * eight + 4 * c + bit / F::code_bits, bit % F::code_bits);
                    codes ^= (words[p.word] >> p.bit & 1) << (bit / F::code_bits * 8 + bit % F::code_bits);
                }
                codes_to_values<F>(codes, s, m, x + 4 * c);
            }
            store8<DTYPE>(a.y + (y + 8 * eight) * (DTYPE == CBQ_F32 ? 4 : 2), x);
        }
    }
}

#define KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(THREADS) cbq_##name(repack_args a) { __VA_ARGS__(a); }
#define KERNELS(f, ...) \
    KERNEL(pack_##f, pack_unit<f##_fragments>) KERNEL(unpack_##f, unpack_unit<f##_fragments>) \
    KERNEL(dequant_##f##_fragments_f32, dequant_unit<f##_fragments, CBQ_F32>) KERNEL(dequant_##f##_fragments_f16, dequant_unit<f##_fragments, CBQ_F16>) \
    KERNEL(dequant_##f##_fragments_bf16, dequant_unit<f##_fragments, CBQ_BF16>)
CBQ_FRAGMENTS(KERNELS)

enum { DEQUANT, PACK = 3, UNPACK, OPERATIONS }; // the first three by type
struct repack_row {
    int tag;
    uint32_t unit, unit_bytes;
    void (*run[OPERATIONS])(repack_args);
    const char *name[OPERATIONS];
};
#define ROW(f, ...) \
    {f##_fragments::tag, f##_fragments::unit, f##_fragments::unit_bytes, \
     {cbq_dequant_##f##_fragments_f32, cbq_dequant_##f##_fragments_f16, cbq_dequant_##f##_fragments_bf16, cbq_pack_##f, cbq_unpack_##f}, \
     {"dequant_" #f "_fragments_f32", "dequant_" #f "_fragments_f16", "dequant_" #f "_fragments_bf16", "pack_" #f, "unpack_" #f}},
static const repack_row rows[] = {CBQ_FRAGMENTS(ROW)};
enum { FORMATS = sizeof rows / sizeof *rows };

static const repack_row *find_row(int tag) {
    for (const repack_row *r = rows; r < rows + FORMATS; r++)
        if (r->tag == tag) return r;
    return NULL;
}
static uint64_t units_of(const repack_row *r, const cbq_cuda_weights *w) {
    return w->experts * tiles_of_rows(w->n) * ((w->k + r->unit - 1) / r->unit);
}

extern "C" uint64_t cbq_cuda_fragment_bytes(const cbq_cuda_weights *w) {
    const repack_row *r = find_row(w->tag);
    return r ? units_of(r, w) * r->unit_bytes : 0;
}

static cudaError_t start(const cbq_cuda_weights *w, int operation, repack_args a, cudaStream_t stream, const char **name) {
    const repack_row *r = find_row(w->tag);
    if (!r || units_of(r, w) > 0x7fffffff) return cudaErrorInvalidValue;
    *name = r->name[operation];
    if (units_of(r, w) == 0) return cudaSuccess;
    a.n = w->n;
    a.k = w->k;
    return cu_launch(r->run[operation], dim3((unsigned)units_of(r, w)), THREADS, 0, stream, a);
}

// The casts: which of its arrays an operation writes, it knows.
extern "C" cudaError_t cbq_cuda_pack(const cbq_cuda_weights *w, const void *blocks, void *fragments, cudaStream_t stream, const char **name) {
    return start(w, PACK, {(uint8_t *)blocks, (uint8_t *)fragments, NULL, 0, 0}, stream, name);
}
extern "C" cudaError_t cbq_cuda_unpack(const cbq_cuda_weights *w, const void *fragments, void *blocks, cudaStream_t stream, const char **name) {
    return start(w, UNPACK, {(uint8_t *)blocks, (uint8_t *)fragments, NULL, 0, 0}, stream, name);
}
extern "C" cudaError_t cbq_cuda_dequant_fragments(const cbq_cuda_weights *w, int dtype, const void *fragments, void *y, cudaStream_t stream,
                                                  const char **name) {
    return start(w, DEQUANT + dtype, {NULL, (uint8_t *)fragments, (uint8_t *)y, 0, 0}, stream, name);
}

extern "C" const char *cbq_cuda_kernel_repack(int i, const void **function) {
    if (i >= OPERATIONS * FORMATS) return NULL;
    *function = (const void *)rows[i / OPERATIONS].run[i % OPERATIONS];
    return rows[i / OPERATIONS].name[i % OPERATIONS];
}
