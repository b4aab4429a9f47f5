/* Arrays of codes to floats and back. */
#pragma once
#include "../codecs/scale_codes.h"
#include "../dispatch.h"
#include "../view.h"

typedef struct {
    int kind;    /* CBQ_CODES_.. */
    int packed;  /* CBQ_UNPACKED or CBQ_PACKED */
    int dtype;   /* CBQ_F32, CBQ_F16, CBQ_BF16 */
    int threads; /* 1 and up, or 0 for the default */
    int stream;  /* stores past the cache: 1, 0, or -1 to decide by the size */
    const cbq_level *level;
    cbq_view codes;
    cbq_out out;
} cbq_decode_codes_args;

typedef struct {
    int kind;     /* CBQ_CODES_.. */
    int packed;   /* CBQ_UNPACKED or CBQ_PACKED */
    int saturate; /* what is beyond the largest value becomes that */
    int source;   /* index in cbq_formats of x's type: f32, f64, f16, bf16 */
    int threads;  /* 1 and up, or 0 for the default */
    cbq_scale_rule rule; /* for e8m0 */
    const cbq_level *level;
    cbq_view x; /* aligned as its type asks for */
    cbq_out out;
} cbq_encode_codes_args;

typedef struct {
    const char *name;
    cbq_code_kind kind;
} cbq_code_row;
extern const cbq_code_row cbq_code_rows[CBQ_N_CODE_KINDS];

/* The index of a kind, -1 where there is none; and its largest value. */
int cbq_find_code_kind(const char *name);
double cbq_largest_value(cbq_code_kind k);

/* Elements below which a call stays on the caller's thread: as for dequant. */
enum { CBQ_CODES_MIN_PARALLEL = 1 << 19 };

cbq_code cbq_decode_codes(const cbq_decode_codes_args *args, cbq_status *st);
cbq_code cbq_encode_codes(const cbq_encode_codes_args *args, cbq_status *st);
