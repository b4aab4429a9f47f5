// The kernel of all products: a CTA goes through its steps, the next ones on their way to shared memory meanwhile.
// L is how W lies in memory (in_blocks.cuh, in_plain.cuh, in_fragments.cuh): it stages a step of W, and multiplies what it staged. M is the
// arithmetic (multiply.cuh).
#pragma once
#include "multiply.cuh"

// Shared memory of a kernel: stages of {rows of W, rows of x}, then the numbers of the rows of x.
template <class L, class M> struct layout_of {
    // Long steps cost less; many rows of x leave no room for them, nor do weights of 16 bits.
    enum {
        step = L::long_steps && (M::TOKENS == 8 || L::elements > 128) ? 256 : 128,
        x_bytes = step * M::element + (M::element == 2 ? L::bf16_pad : L::f32_pad),
        w_stage = L::template staged<step>::bytes,
        stage = w_stage + M::TOKENS * x_bytes,
        // Two stages of any format fit the 99 KiB that the smallest GPUs give a CTA.
        stages = stage * 3 + 4 * M::TOKENS <= 99 * 1024 ? 3 : 2,
        bytes = stage * stages + 4 * M::TOKENS,
    };
};

// CTAs that a multiprocessor is to hold at a time, where its shared memory has room for them.
template <class M> constexpr int ctas_of() { return M::TOKENS == 8 ? 4 : 2; }

// Steps `step` to `end` of one tile.
template <class LW, class M>
CBQ_FN void sum_steps(uint8_t *shared, const product_args &a, const tile_of_work &t, uint32_t step, uint32_t end, typename M::state &s) {
    typedef layout_of<LW, M> L;
    uint32_t *rows = (uint32_t *)(shared + L::stages * L::stage);
    uint32_t tokens = (t.tokens + 7) / 8 * 8;
    for (uint32_t i = threadIdx.x; i < tokens; i += THREADS) rows[i] = row_of(a, t.token + (i < t.tokens ? i : t.tokens - 1)) / a.picks;
    cu_barrier(); // the rows are there, and all are done with the tile before

    // A step is computed `ahead` turns after its copies began. One group of copies a turn, an empty one past the end: so the
    // wait is always for the same number.
    const uint32_t ahead = L::stages - 1;
    for (uint32_t turn = 0; turn < end - step + ahead; turn++) {
        if (turn >= ahead) {
            cu_wait<L::stages - 2>();
            cu_barrier(); // the step has landed for all threads, and all are done with the one before, whose place is filled now
        }
        if (step + turn < end) {
            uint32_t at = step + turn, from = at * L::step, elements = a.k - from < L::step ? a.k - from : L::step;
            uint8_t *to = shared + turn % L::stages * L::stage;
            LW::template stage<L::step>(to, a, t, at);
            stage_x<LW, L::step, M::TOKENS, M::dtype>(to + L::w_stage, L::x_bytes, a, rows, tokens, from, elements);
        }
        cu_commit();
        if (turn < ahead) continue;
        const uint8_t *staged = shared + (turn - ahead) % L::stages * L::stage;
        LW::template multiply<L::step, M>(staged, a, t, step + turn - ahead, staged + L::w_stage, L::x_bytes, s);
    }
}

template <class L, class M> CBQ_FN void product(const product_args &a) {
    enum { TOKENS = M::TOKENS };
    CU_DYNAMIC_SHARED(shared);
    piece_of_work p = first_piece<TOKENS>(a);
    while (next_piece<TOKENS>(a, p)) {
        typename M::state state;
        M::clear(state);
        sum_steps<L, M>(shared, a, p.t, p.from, p.to, state);
        sums<TOKENS> s;
        M::finish(state, s);
        if (p.to - p.from == a.steps) write_tile(a, p.t, s);
        else write_part(part_of<TOKENS>(a, blockIdx.x, p.from == 0), s);
    }
}

// The CTA that begins a tile and does not end it adds up its part and those of the CTAs that go on with it.
template <int TOKENS, int R = ROWS> CBQ_FN void sum_parts(const product_args &a) {
    uint64_t steps = all_steps<TOKENS, R>(a), end = begin_of(steps, blockIdx.x + 1, gridDim.x);
    if (end % a.steps == 0) return;
    uint64_t tile = end / a.steps, tile_end = (tile + 1) * a.steps;
    if (begin_of(steps, blockIdx.x, gridDim.x) > tile * a.steps) return; // another one began it
    sums<TOKENS> s;
    clear_sums(s);
    add_part<R>(part_of<TOKENS, R>(a, blockIdx.x, true), s);
    for (uint32_t cta = blockIdx.x + 1; begin_of(steps, cta, gridDim.x) < tile_end; cta++) add_part<R>(part_of<TOKENS, R>(a, cta, false), s);
    write_tile(a, find_tile<TOKENS, R>(a, tile), s);
}
