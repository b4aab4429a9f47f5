#include "registry.h"

#include "word/scalar.h"
#include "cbq_format_list.h"

#define LINEAR(offset, bits) CBQ_KIND_LINEAR, offset, bits
#define TABLE(values, multiple, bits) CBQ_KIND_TABLE, CBQ_BIAS(bits), bits
#define SIGNED(bits) CBQ_KIND_SIGNED, CBQ_BIAS(bits), bits
#define NOMIN 0
#define MIN_ONE 1
#define MIN_GROUPS 1

#define BLOCK_ROW(f, tag, elements, bytes, group, kind, scales, min, imatrix, doc) \
    {#f, tag, elements, bytes, group, kind, min, imatrix, doc},
#define PLAIN_ROW(f, tag, bytes, load, doc) {#f, tag, 1, bytes, 1, CBQ_KIND_PLAIN, 0, 0, 0, 0, doc},

const cbq_format cbq_formats[] = {CBQ_FORMATS(BLOCK_ROW, PLAIN_ROW)};
const int cbq_n_formats = (int)(sizeof cbq_formats / sizeof cbq_formats[0]);

int cbq_find_format(const char *name) {
    for (int i = 0; i < cbq_n_formats; i++)
        if (strcmp(cbq_formats[i].name, name) == 0) return i;
    return -1;
}
