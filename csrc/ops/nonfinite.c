/* Which blocks have a scale that is no number. Reads two or so values of each block, so plain C is fast enough. */
#include "../word/scalar.h"
#include "../kernels/decoder.h"
#include "check.h"
#include "dequant.h"

CBQ_FN int bad(float x) { return (cbq_as_u32(x) & 0x7f800000u) == 0x7f800000u; } /* the exponent of NaN and infinity */

CBQ_FN int bad_block(const uint8_t *b, cbq_decoder f) {
    int found = f.min && bad(f.dmin(b));
    if (f.scales != CBQ_FLOATS) return found | bad(f.d(b));
    for (int g = 0; g < f.elements / f.group; g++) found |= bad(f.s(b, (uint32_t)g));
    return found;
}

typedef void mark_fn(const uint8_t *b, uint8_t *mask, int64_t n);
#define BLOCK_MARK(f, ...) \
    static void f##_mark(const uint8_t *b, uint8_t *mask, int64_t n) { for (int64_t i = 0; i < n; i++, b += f##_decoder.bytes) mask[i] = (uint8_t)bad_block(b, f##_decoder); }
#define PLAIN_MARK(f, tag, bytes, load, doc) \
    static void f##_mark(const uint8_t *p, uint8_t *mask, int64_t n) { for (int64_t i = 0; i < n; i++) mask[i] = (uint8_t)bad(cbq_##f##_value(p + i * bytes)); }
CBQ_FORMATS(BLOCK_MARK, PLAIN_MARK)
#define MARK_ROW(f, ...) f##_mark,
static mark_fn *const marks[] = {CBQ_FORMATS(MARK_ROW, MARK_ROW)};

typedef struct {
    mark_fn *mark;
    const uint8_t *blocks;
    uint8_t *mask;
    int64_t block_bytes;
} task;

static void mark_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    t->mark(t->blocks + begin * t->block_bytes, t->mask + begin, end - begin);
}

cbq_code cbq_nonfinite(int format, cbq_view blocks, cbq_out mask, int threads, cbq_status *st) {
    const cbq_format *f = &cbq_formats[format];
    int64_t n = 0;
    if (cbq_count_blocks(f, blocks, &n, st)) return st->code;
    if (mask.bytes != n) return cbq_fail(st, CBQ_BAD_VALUE, "mask: expected %lld bytes, got %lld", (long long)n, (long long)mask.bytes);
    task t = {marks[format], blocks.data, mask.data, f->bytes};
    cbq_parallel(n, 1 << 16, cbq_resolve_threads(threads), mark_range, &t);
    return CBQ_OK;
}
