/* The list of formats. Each header of formats/ ends with one row,

     #define CBQ_FORMAT_name(BLOCK, PLAIN) BLOCK(name, tag, elements, bytes, group, kind, scales, min, imatrix, doc)
     #define CBQ_FORMAT_name(BLOCK, PLAIN) PLAIN(name, tag, bytes, load, doc)

   and setup.py writes cbq_format_list.h into the build folder: one #include a header, and CBQ_FORMATS, which expands
   every row. All tables of formats in this project are that expansion. The words of a row:

     tag      the type number in a GGUF file, of this format alone
     elements, bytes, group   of a block: runs of 32; groups of 16 or 32 and so on, 8 or 16 of them where they have scales
     kind     LINEAR(offset, bits): unsigned codes of that many bits, value code - offset
              TABLE(values, multiple, bits): 4-bit indices of 16 floats that are exact as bf16; times `multiple` they
                are signed integers of so many bits
              SIGNED(bits): signed bytes, whose values would fit so many bits
     scales   ONE: d(b). GROUPS: d(b) times signed byte s of a group, four of them a call: s4(b, k)
              FLOATS: a float for each group: s(b, g)
     min      NOMIN. MIN_ONE: dmin(b) is subtracted. MIN_GROUPS: dmin(b) times the byte of a group: m4(b, k)
     imatrix  1 where the encoder needs an importance matrix
     load     VECTOR: the vocabulary loads it; SCALAR: name_value(p), one at a time */
#pragma once
#include <stdint.h>

typedef enum { CBQ_KIND_LINEAR, CBQ_KIND_TABLE, CBQ_KIND_SIGNED, CBQ_KIND_PLAIN } cbq_kind;

typedef struct {
    const char *name;
    int tag;
    int elements, bytes, group; /* of a block; a group is the elements under one scale */
    cbq_kind kind;
    int bias, bits; /* of its codes as unsigned integers, see kernels/panel.h; 0 for plain types */
    int has_min, needs_imatrix;
    const char *doc;
} cbq_format;

extern const cbq_format cbq_formats[];
extern const int cbq_n_formats;

/* The index of a format in cbq_formats, or -1. */
int cbq_find_format(const char *name);
