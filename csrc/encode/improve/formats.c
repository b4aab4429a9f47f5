/* The improver of every format that has an encoder, made of its row and its CBQ_STORE_NAME. */
#include "improver.h"

#include "cbq_improver_list.h"

#define FREE(lowest, highest) .codes = CBQ_CODES_FREE, .low = lowest, .high = highest
#define BOOK .codes = CBQ_CODES_BOOK
#define KEPT .codes = CBQ_CODES_KEPT
#define F16(times) .unit = times
#define BYTES .scale_bytes = 1
#define STEPS(lowest, highest, step, plus) .has_steps = 1, .s_low = lowest, .s_high = highest, .s_step = step, .s_plus = plus
#define MINIMUM(times) .min_unit = times, .m_plus = 1
#define MINIMUMS(highest) .min_unit = 1, .m_high = highest

#define DEFINE_IMPROVER(f, ...) \
    static void f##_write(uint8_t *b, const cbq_fields *fields) { cbq_##f##_write((cbq_##f##_block *)b, fields); } \
    static const cbq_improver f##_improver = {.decoder = &f##_decoder, .write = f##_write, CBQ_STORE_##f};
CBQ_IMPROVED_FORMATS(DEFINE_IMPROVER)

#define IMPROVER_ROW(f, ...) CBQ_IMPROVER_##f,
static const cbq_improver *const improvers[] = {CBQ_FORMATS(IMPROVER_ROW, CBQ_NO_ROW)};

const cbq_improver *cbq_improver_of(int format) { return improvers[format]; }
