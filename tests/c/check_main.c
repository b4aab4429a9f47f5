/* Decodes blocks from a file and compares with the values that stand behind them, for machines without Python: NEON under
   qemu. tools/check.py writes the file, builds this for each machine and runs it.

     check_main FILE

   FILE is cases, one after the other, in little-endian: the format's name in 16 bytes, the number of blocks as an int64,
   the blocks, then what they decode to, as f32, f16 and bf16. Every level that the machine can run and that brings
   kernels of its own decodes all of it and encodes the values again, and every level multiplies with it. Exit status 0: all
   bits are equal (NaN equals NaN), all encoders give the bytes of plain C, and all products are near; 1: some are not; 2: the
   file or CBQUANT_ISA is no good. A hash of what plain C encodes is printed: the same on every machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base.h"
#include "ops/dequant.h"
#include "ops/matmul.h"
#include "ops/quantize.h"

static const struct { const char *name; int bytes; uint32_t magnitude, infinity; } dtypes[] = {
    [CBQ_F32] = {"f32", 4, 0x7fffffff, 0x7f800000},
    [CBQ_F16] = {"f16", 2, 0x7fff, 0x7c00},
    [CBQ_BF16] = {"bf16", 2, 0x7fff, 0x7f80},
};
/* How the work is cut and stored: neither may change a bit. */
static const struct { int threads, stream; } ways[] = {{1, 0}, {1, 1}, {3, 0}};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], N_WAYS = sizeof ways / sizeof ways[0], NAME_BYTES = 16 };

typedef struct {
    const uint8_t *at, *end;
} cursor;

typedef struct {
    int format;
    int64_t values;
    cbq_view blocks;
    const uint8_t *expected[N_DTYPES];
} test_case;

static void *checked(void *p) {
    if (p) return p;
    fprintf(stderr, "no memory\n");
    exit(2);
}

static const uint8_t *take(cursor *c, int64_t bytes) {
    const uint8_t *p = c->at;
    if (bytes < 0 || bytes > c->end - c->at) {
        fprintf(stderr, "the file ends inside a case\n");
        exit(2);
    }
    c->at += bytes;
    return p;
}

static test_case next_case(cursor *c) {
    test_case t;
    int64_t n;
    const char *name = (const char *)take(c, NAME_BYTES);
    t.format = name[NAME_BYTES - 1] ? -1 : cbq_find_format(name);
    if (t.format < 0) {
        fprintf(stderr, "there is no format '%.16s'\n", name);
        exit(2);
    }
    const cbq_format *f = &cbq_formats[t.format];
    memcpy(&n, take(c, sizeof n), sizeof n);
    t.values = n * f->elements;
    t.blocks = (cbq_view){take(c, n * f->bytes), n * f->bytes};
    for (int d = 0; d < N_DTYPES; d++) t.expected[d] = take(c, t.values * dtypes[d].bytes);
    return t;
}

static uint32_t value_at(const uint8_t *p, int64_t i, int bytes) { return bytes == 4 ? cbq_u32(p + 4 * i, 1) : cbq_u16(p + 2 * i, 1); }

/* How many of the values differ; the first one is printed. */
static int64_t compare(const test_case *t, const uint8_t *out, int d, const char *level) {
    int64_t differ = 0;
    for (int64_t i = 0; i < t->values; i++) {
        uint32_t e = value_at(t->expected[d], i, dtypes[d].bytes), a = value_at(out, i, dtypes[d].bytes);
        int both_nan = (e & dtypes[d].magnitude) > dtypes[d].infinity && (a & dtypes[d].magnitude) > dtypes[d].infinity;
        if (e == a || both_nan) continue;
        if (!differ++)
            printf("%s %s %s: value %lld is 0x%08x, expected 0x%08x\n", level, cbq_formats[t->format].name, dtypes[d].name, (long long)i, a, e);
    }
    return differ;
}

/* Into memory of exactly the right size, so that tools that watch memory see a step past its end. */
static int64_t run_case(const test_case *t, const cbq_level *level) {
    int64_t differ = 0;
    for (int d = 0; d < N_DTYPES; d++) {
        int64_t bytes = t->values * dtypes[d].bytes;
        uint8_t *out = checked(malloc((size_t)bytes));
        for (int w = 0; w < N_WAYS; w++) {
            cbq_status st = {CBQ_OK, ""};
            cbq_dequant_args a = {t->format, d, ways[w].threads, ways[w].stream, level, t->blocks, {out, bytes}};
            memset(out, 0x5a, (size_t)bytes);
            if (cbq_dequant(&a, &st)) {
                fprintf(stderr, "%s\n", st.text);
                exit(2);
            }
            differ += compare(t, out, d, level->name);
        }
        free(out);
    }
    return differ;
}

/* Each block is a row of weights. x is of -1, 0 and 1, which are exact in every precision. */
enum { ROWS_OF_X = 7, MAX_ROWS = 300 };
static float x_at(int64_t i) { return (float)(i * 7 % 11 % 3 - 1); }

static const struct { const char *name; double bound; } precisions[] = {
    [CBQ_PRECISION_F32] = {"f32", 1e-6},
    [CBQ_PRECISION_BF16] = {"bf16", 0x1p-8}, /* what rounding the weights may do */
    [CBQ_PRECISION_Q8] = {"q8", 1e-6},
    [CBQ_PRECISION_Q16] = {"q16", 1e-6},
};

/* How many of the products are not near what the values give. Rows too large to add up are left out, and rows so small that
   instructions for bf16 may take them for zero. */
static int64_t compare_products(const test_case *t, const float *y, const cbq_matmul_args *a, const char *level) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j = 0; j < a->n; j++) {
            double sum = 0, size = 0;
            for (int64_t e = 0; e < a->k; e++) {
                double w = cbq_as_f32(value_at(t->expected[CBQ_F32], j * a->k + e, 4));
                sum += w * x_at(i * a->k + e);
                size += fabs(w);
            }
            double error = fabs(y[i * a->n + j] - sum);
            if (!(size > 1e-30 && size < 1e30) || error <= precisions[a->precision].bound * size) continue;
            if (!wrong++)
                printf("%s %s %s, %lld rows of x: product %lld %lld is %g, expected %g\n", level, cbq_formats[t->format].name,
                       precisions[a->precision].name, (long long)a->m, (long long)i, (long long)j, (double)y[i * a->n + j], sum);
        }
    return wrong;
}

static int64_t multiply_case(const test_case *t, const cbq_level *level) {
    const cbq_format *f = &cbq_formats[t->format];
    const int64_t k = f->elements, rows = t->values / k < MAX_ROWS ? t->values / k : MAX_ROWS;
    int64_t wrong = 0;
    if (f->kind == CBQ_KIND_PLAIN || rows == 0) return 0;
    for (int m = 1; m <= ROWS_OF_X; m += 2)
        for (int p = 0; p < (int)(sizeof precisions / sizeof precisions[0]); p++) {
            float *x = checked(malloc((size_t)(m * k) * 4)), *y = checked(malloc((size_t)(m * rows) * 4));
            for (int64_t i = 0; i < m * k; i++) x[i] = x_at(i);
            cbq_status st = {CBQ_OK, ""};
            cbq_matmul_args a = {.format = t->format, .precision = p, .dtype = CBQ_F32, .out_dtype = CBQ_F32, .threads = 2, .m = m, .n = rows,
                                 .k = k, .level = level, .x = {(uint8_t *)x, m * k * 4}, .w = {t->blocks.data, rows * f->bytes},
                                 .out = {(uint8_t *)y, m * rows * 4}};
            if (cbq_matmul(&a, &st)) {
                fprintf(stderr, "%s\n", st.text);
                exit(2);
            }
            wrong += compare_products(t, y, &a, level->name);
            free(x);
            free(y);
        }
    return wrong;
}

static int64_t multiply_level(const cbq_level *level, cursor file) {
    int64_t wrong = 0;
    while (file.at < file.end) {
        test_case t = next_case(&file);
        wrong += multiply_case(&t, level);
    }
    printf("%s: products, %lld wrong\n", level->name, (long long)wrong);
    return wrong;
}

/* Encoders are tried on what blocks decode to, where those are ordinary numbers; each block is a row. */
static int64_t take_rows(const test_case *t, int64_t k, float *x) {
    int64_t rows = 0;
    for (int64_t i = 0; i < t->values / k && rows < MAX_ROWS; i++) {
        int ordinary = 1;
        for (int64_t e = 0; e < k; e++) {
            float v = x[rows * k + e] = cbq_as_f32(value_at(t->expected[CBQ_F32], i * k + e, 4));
            ordinary &= fabsf(v) < 1e6f; /* false for NaN */
        }
        rows += ordinary;
    }
    return rows;
}

static void encode_rows(const test_case *t, const cbq_level *level, const float *x, const float *importance, int64_t rows, uint8_t *out) {
    const cbq_format *f = &cbq_formats[t->format];
    cbq_status st = {CBQ_OK, ""};
    cbq_quantize_args a = {.format = t->format, .source = cbq_find_format("f32"), .threads = 2, .level = level, .rows = rows, .k = f->elements,
                           .x = {(const uint8_t *)x, rows * f->elements * 4}, .out = {out, rows * f->bytes}};
    if (importance) a.importance = (cbq_view){(const uint8_t *)importance, f->elements * 4};
    memset(out, 0x5a, (size_t)(rows * f->bytes));
    if (!cbq_quantize(&a, &st)) return;
    fprintf(stderr, "%s\n", st.text);
    exit(2);
}

static uint64_t hash_bytes(uint64_t hash, const uint8_t *p, int64_t n) { /* FNV-1a */
    for (int64_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* Rows that differ from plain C's, of a case with and without importance. */
static int64_t encode_case(const test_case *t, const cbq_level *level, uint64_t *hash) {
    const cbq_format *f = &cbq_formats[t->format];
    const int64_t k = f->elements;
    int64_t differ = 0;
    if (!level->encoders->encode[t->format]) return 0;
    float *x = checked(malloc((size_t)((MAX_ROWS + 1) * k) * 4)), *importance = checked(malloc((size_t)k * 4));
    uint8_t *out = checked(malloc((size_t)(MAX_ROWS * f->bytes))), *plain = checked(malloc((size_t)(MAX_ROWS * f->bytes)));
    int64_t rows = take_rows(t, k, x);
    for (int64_t e = 0; e < k; e++) importance[e] = (float)(e * 5 % 17 + 1);
    for (int weighted = f->needs_imatrix; weighted < 2 && rows > 0; weighted++) {
        encode_rows(t, level, x, weighted ? importance : NULL, rows, out);
        encode_rows(t, &cbq_levels[0], x, weighted ? importance : NULL, rows, plain);
        for (int64_t r = 0; r < rows; r++) differ += memcmp(out + r * f->bytes, plain + r * f->bytes, (size_t)f->bytes) != 0;
        *hash = hash_bytes(*hash, plain, rows * f->bytes);
    }
    if (differ) printf("%s %s: %lld rows are not encoded as in plain C\n", level->name, f->name, (long long)differ);
    free(x), free(importance), free(out), free(plain);
    return differ;
}

static int64_t encode_level(const cbq_level *level, cursor file) {
    int64_t differ = 0;
    uint64_t hash = 0xcbf29ce484222325u;
    while (file.at < file.end) {
        test_case t = next_case(&file);
        differ += encode_case(&t, level, &hash);
    }
    printf("%s: encoders, %lld rows differ, hash %016llx\n", level->name, (long long)differ, (unsigned long long)hash);
    return differ;
}

static int64_t run_level(const cbq_level *level, cursor file) {
    int64_t cases = 0, values = 0, differ = 0;
    for (; file.at < file.end; cases++) {
        test_case t = next_case(&file);
        values += t.values;
        differ += run_case(&t, level);
    }
    printf("%s: %lld cases, %lld values, %d types, %d ways: %lld differ\n", level->name, (long long)cases, (long long)values, N_DTYPES, N_WAYS,
           (long long)differ);
    return differ;
}

static cursor read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        perror(path);
        exit(2);
    }
    long size = ftell(f);
    rewind(f);
    uint8_t *data = checked(malloc((size_t)size + 1));
    if (fread(data, 1, (size_t)size, f) != (size_t)size) {
        perror(path);
        exit(2);
    }
    fclose(f);
    return (cursor){data, data + size};
}

int main(int argc, char **argv) {
    cbq_status st = {CBQ_OK, ""};
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    const char *forced = getenv("CBQUANT_ISA");
    if (cbq_use_level(forced && *forced ? forced : NULL, &st)) {
        fprintf(stderr, "%s\n", st.text);
        return 2;
    }
    printf("level in use: %s\n", cbq_current_level()->name);
    cursor file = read_file(argv[1]);
    int64_t differ = 0;
    for (const cbq_level *level = cbq_levels; level < cbq_levels + cbq_n_levels; level++)
        if (cbq_level_available(level)) {
            if (strcmp(level->name, level->kernels_name) == 0) differ += run_level(level, file) + encode_level(level, file);
            differ += multiply_level(level, file);
        }
    return differ ? 1 : 0;
}
