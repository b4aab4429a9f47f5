// The kernel of products for many tokens on Hopper. A CTA has 128 rows of W: four warps that bring bytes to shared memory, and eight that
// decode 64 rows of W each four and multiply them by up to 256 tokens.
//
// There are two rings of stages in shared memory, each with a barrier for full and one for empty: steps of W, 256 elements of its rows as they
// are, a copy to each row; and chunks of x, 64 elements of all tokens in one copy (wgmma_x.cuh). W is decoded into registers, the first
// operand of wgmma, while the products of the run before go on by themselves; x is its second operand, from shared memory.
#pragma once
#include "in_blocks.cuh"
#include "wgmma_x.cuh"

#include <instructions_sm90.cuh>

enum { WGMMA_ROWS = 128, WGMMA_STEP = 256, WGMMA_CONSUMERS = 256, WGMMA_THREADS = WGMMA_CONSUMERS + 128 };
// Registers. At the launch each thread gets 168, as many as 65536 allow in units of eight; then the CTA shares out what it has, no more: a warp
// that asked for more would wait for ever.
enum { PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232, LAUNCH_REGISTERS = 65536 / WGMMA_THREADS / 8 * 8 };
static_assert(PRODUCER_REGISTERS * 128 + CONSUMER_REGISTERS * WGMMA_CONSUMERS <= LAUNCH_REGISTERS * WGMMA_THREADS, "the registers of a CTA");

template <class T, int N> struct wgmma_layout {
    typedef step_of<T, WGMMA_STEP> S;
    enum {
        TOKENS = N,
        x_stage = N * CHUNK * 2,
        x_stages = 4,
        w_stage = WGMMA_ROWS * S::row_bytes,
        most = 227 * 1024, // of a CTA on Hopper
        aligned = 1024,    // to begin x at a multiple of that
        barriers = 16 * (x_stages + 4),
        fit = (most - aligned - barriers - x_stages * x_stage) / w_stage,
        w_stages = fit < 4 ? fit : 4,
        w_at = x_stages * x_stage,
        barriers_at = w_at + w_stages * w_stage,
        bytes = aligned + barriers_at + barriers,
    };
    static_assert(w_stages >= 2, "one step of W is copied while another is decoded");
};

// Stages that are filled and emptied in turn. Those who fill and those who empty go through them at their own pace.
template <int STAGES> struct ring {
    uint64_t *full, *empty; // barriers of each stage
    uint32_t stage, parity;
    CBQ_FN void start(ring &r, uint64_t *barriers) {
        r.full = barriers;
        r.empty = barriers + STAGES;
        r.stage = r.parity = 0;
    }
    CBQ_FN void init(const ring &r, uint32_t fillers, uint32_t emptiers) {
        for (int i = 0; i < STAGES; i++) {
            cu_mbarrier_init(r.full + i, fillers);
            cu_mbarrier_init(r.empty + i, emptiers);
        }
    }
    CBQ_FN void wait_full(const ring &r) { cu_mbarrier_wait(r.full + r.stage, r.parity); }
    CBQ_FN void wait_empty(const ring &r) { cu_mbarrier_wait(r.empty + r.stage, r.parity ^ 1); }
    CBQ_FN void next(ring &r) {
        if (++r.stage < STAGES) return;
        r.stage = 0;
        r.parity ^= 1;
    }
};

// A warp is done with a stage.
CBQ_FN void empty_stage(uint64_t *barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) cu_mbarrier_arrive(barrier);
}

CBQ_FN uint32_t runs_of_step(const product_args &a, uint32_t step, uint32_t elements) {
    uint32_t left = a.k - step * elements;
    return (left < elements ? left : elements) / 32;
}

// The chunks of 16 bytes that so many bytes of a row touch.
struct row_copy {
    const uint8_t *from;
    uint32_t bytes;
};
CBQ_FN row_copy copy_of(const uint8_t *first, uint32_t row, uint32_t row_bytes, uint32_t bytes) {
    const uint8_t *from = first + (uint64_t)row * row_bytes;
    uint32_t shift = (uint32_t)(uintptr_t)from % 16;
    row_copy c = {from - shift, (shift + bytes + 15) / 16 * 16};
    return c;
}

// Three warps copy the steps of W: a lane one row or two. The lanes of a warp start their copies one after the other, so the rows past 96
// are of all three.
enum { W_SENDERS = 96 };
template <class T, class L> CBQ_FN void send_w(uint32_t thread, uint8_t *staged, ring<L::w_stages> &r, const product_args &a) {
    typedef typename L::S S;
    const uint32_t begin = thread % 32 * (W_SENDERS / 32) + thread / 32;
    uint32_t row_bytes = a.k / T::elements * T::bytes;
    piece_of_work p = first_piece<L::TOKENS, WGMMA_ROWS>(a);
    while (next_piece<L::TOKENS, WGMMA_ROWS>(a, p)) {
        uint32_t last = a.n - 1 - p.t.row;
#pragma unroll 1
        for (uint32_t step = p.from; step < p.to; step++) {
            const uint8_t *first = row_of_w<T>(a, p.t, 0) + (uint64_t)step * S::bytes;
            uint32_t bytes = runs_of_step(a, step, S::elements) * 32 / T::elements * T::bytes, all = 0;
#pragma unroll 1
            for (uint32_t row = begin; row < WGMMA_ROWS; row += W_SENDERS) all += copy_of(first, row < last ? row : last, row_bytes, bytes).bytes;
            ring<L::w_stages>::wait_empty(r);
            cu_mbarrier_expect(r.full + r.stage, all);
#pragma unroll 1
            for (uint32_t row = begin; row < WGMMA_ROWS; row += W_SENDERS) {
                row_copy c = copy_of(first, row < last ? row : last, row_bytes, bytes);
                cu_copy_bulk(staged + r.stage * L::w_stage + row * S::row_bytes, c.from, c.bytes, r.full + r.stage);
            }
            ring<L::w_stages>::next(r);
        }
    }
}

// A lane copies the chunks of x: a.x is what pack_row wrote, and a.x_stride its groups.
template <class T, class L> CBQ_FN void send_x(uint8_t *staged, ring<L::x_stages> &r, const product_args &a) {
    piece_of_work p = first_piece<L::TOKENS, WGMMA_ROWS>(a);
    while (next_piece<L::TOKENS, WGMMA_ROWS>(a, p)) {
        uint32_t bytes = (p.t.tokens + 7) / 8 * GROUP_BYTES, end = p.to * (WGMMA_STEP / CHUNK), chunks = (a.k + CHUNK - 1) / CHUNK;
        const uint8_t *from = a.x + (uint64_t)group_of(a, p.t.expert, p.t.token) * GROUP_BYTES;
        for (uint32_t chunk = p.from * (WGMMA_STEP / CHUNK); chunk < end && chunk < chunks; chunk++) {
            ring<L::x_stages>::wait_empty(r);
            cu_mbarrier_expect(r.full + r.stage, bytes);
            cu_copy_bulk(staged + r.stage * L::x_stage, from + chunk * a.x_stride * GROUP_BYTES, bytes, r.full + r.stage);
            ring<L::x_stages>::next(r);
        }
    }
}

// A run of 32 elements of a lane's two rows as the first operands of two products.
template <class T> CBQ_FN void decode_run(const uint8_t *low, const uint8_t *high, uint32_t r, uint32_t (&a)[2][4]) {
    uint32_t l[4], h[4];
    decode8<T>(low, r, l);
    decode8<T>(high, r, h);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a[i][0] = l[2 * i];
        a[i][1] = h[2 * i];
        a[i][2] = l[2 * i + 1];
        a[i][3] = h[2 * i + 1];
    }
}

// The products of a run with half a chunk of N tokens of x; they go on after the call.
template <int N, class L> CBQ_FN void begin_products(const uint8_t *chunk, uint32_t half, uint32_t (&a)[2][4], sums<L::TOKENS> &s) {
    uint64_t matrix = cu_matrix_of(chunk) + 4 * half;
    cu_wgmma_fence();
    cu_wgmma_bf16<N>(s.of, a[0], matrix);
    cu_wgmma_bf16<N>(s.of, a[1], matrix + 2);
    cu_wgmma_commit();
}
// Those of all groups but the newest N are done, of which the older one read these registers.
template <int N> CBQ_FN void end_products(uint32_t (&a)[2][4]) {
    cu_wgmma_wait<N>();
    cu_hold(a[0]);
    cu_hold(a[1]);
}

// The sums of a piece of work, for N tokens. A run is decoded into one of two sets of registers while the products of the other one go on.
template <int N, class T, class L>
CBQ_FN void multiply_piece(const uint8_t *staged_x, const uint8_t *staged_w, ring<L::x_stages> &x, ring<L::w_stages> &w, const product_args &a,
                           const piece_of_work &p, sums<L::TOKENS> &s) {
    typedef typename L::S S;
    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    uint32_t fragments[2][2][4];
    uint64_t *last = NULL; // the barrier of the chunk before
#pragma unroll 1
    for (uint32_t step = p.from; step < p.to; step++) {
        ring<L::w_stages>::wait_full(w);
        const uint8_t *staged = staged_w + w.stage * L::w_stage;
        const uint8_t *low = staged_row<T, S>(staged, a, p.t, row, step), *high = staged_row<T, S>(staged, a, p.t, row + 8, step);
        uint32_t runs = runs_of_step(a, step, S::elements);
#pragma unroll 1
        for (uint32_t quad = 0; quad < runs / 4; quad++) { // unrolled: they share words of scales
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                decode_run<T>(low, high, 4 * quad + i, fragments[i % 2]);
                if (i % 2 == 0) ring<L::x_stages>::wait_full(x);
                begin_products<N, L>(staged_x + x.stage * L::x_stage, i % 2, fragments[i % 2], s);
                end_products<1>(fragments[1 - i % 2]);
                if (i % 2 == 0) {
                    if (last) empty_stage(last);
                    last = x.empty + x.stage;
                } else ring<L::x_stages>::next(x);
            }
        }
        if (T::elements < 128) {
#pragma unroll 1
            for (uint32_t run = runs / 4 * 4; run < runs; run++) { // the end of k
                decode_run<T>(low, high, run, fragments[0]);
                if (run % 2 == 0) ring<L::x_stages>::wait_full(x);
                begin_products<N, L>(staged_x + x.stage * L::x_stage, run % 2, fragments[0], s);
                end_products<0>(fragments[0]);
                if (last) empty_stage(last);
                last = NULL;
                if (run % 2 == 0 && run + 1 < runs) continue;
                empty_stage(x.empty + x.stage);
                ring<L::x_stages>::next(x);
            }
        }
        empty_stage(w.empty + w.stage);
        ring<L::w_stages>::next(w);
    }
    cu_wgmma_wait<0>();
#pragma unroll
    for (uint32_t j = 0; j < L::TOKENS / 8; j++) cu_hold_sums(s.of[j]);
    if (last) empty_stage(last);
}

template <class T, int N> CBQ_FN void wgmma_product(const product_args &a) {
    typedef wgmma_layout<T, N> L;
    CU_DYNAMIC_SHARED(shared);
    uint8_t *staged_x = shared + (0u - cu_shared_address(shared)) % L::aligned, *staged_w = staged_x + L::w_at;
    ring<L::x_stages> x;
    ring<L::w_stages> w;
    ring<L::x_stages>::start(x, (uint64_t *)(staged_x + L::barriers_at));
    ring<L::w_stages>::start(w, x.full + 2 * L::x_stages);
    if (threadIdx.x == 0) {
        ring<L::x_stages>::init(x, 1, WGMMA_CONSUMERS / 32);
        ring<L::w_stages>::init(w, W_SENDERS, WGMMA_CONSUMERS / 32);
        cu_proxy_fence();
    }
    cu_barrier();
    if (threadIdx.x >= WGMMA_CONSUMERS) {
        cu_fewer_registers<PRODUCER_REGISTERS>();
        uint32_t thread = threadIdx.x - WGMMA_CONSUMERS;
        if (thread < W_SENDERS) send_w<T, L>(thread, staged_w, w, a);
        else if (thread == W_SENDERS) send_x<T, L>(staged_x, x, a);
        return;
    }
    cu_more_registers<CONSUMER_REGISTERS>();
    piece_of_work p = first_piece<N, WGMMA_ROWS>(a);
    while (next_piece<N, WGMMA_ROWS>(a, p)) {
        sums<N> s;
        clear_sums(s);
        if (p.t.tokens <= N / 2) multiply_piece<N / 2, T, L>(staged_x, staged_w, x, w, a, p, s);
        else multiply_piece<N, T, L>(staged_x, staged_w, x, w, a, p, s);
        if (p.to - p.from == a.steps) write_tile(a, p.t, s);
        else write_part<WGMMA_ROWS>(part_of<N, WGMMA_ROWS>(a, blockIdx.x, p.from == 0), s);
    }
}
