/* What a core can do at most: read memory, multiply and add floats, multiply and add bytes. benchmarks/peaks.py compiles
   it and says which function goes with which level of instructions; a machine only runs those that it has.

   Each function does so many rounds of operations on registers and returns how many operations they were, a multiply-add
   being two. Sums of one register wait for each other, so that there are several. An empty asm that may change a register
   keeps the compiler from finding equal sums, and from computing a product once for all rounds. */
#include <stddef.h>
#include <stdint.h>

#define UNKNOWN(v) __asm__ volatile("" : "+" VECTOR(v))
/* Unrolled, so that an array of sums is registers. */
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#define CLEAR(v, zero) do { (v) = (zero); UNKNOWN(v); } while (0)
#define SUMS 12 /* two a cycle, each of which takes four or five cycles, and some to spare */

/* Reads all lines of 64 bytes in `n`, at a 64-byte boundary, four at a time. `ahead` is how far before that a line is asked
   for, in bytes, or 0; what is asked for past the end is not loaded. */
typedef uint64_t line __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) uint64_t read_lines(const uint8_t *p, size_t n, size_t ahead) {
    line seen[4] = {0};
    const line *lines = (const line *)p;
    for (size_t i = 0; i + 4 <= n / sizeof(line); i += 4)
        EACH(j, 4) {
            if (ahead) __builtin_prefetch((const uint8_t *)(lines + i + j) + ahead);
            seen[j] |= lines[i + j];
        }
    seen[0] |= seen[1] | seen[2] | seen[3];
    uint64_t any = 0;
    EACH(j, 8) any |= seen[0][j];
    return any;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define VECTOR(v) "x"(v)

__attribute__((target("avx512f"))) static uint64_t read_avx512(const uint8_t *p, size_t n, size_t ahead) { return read_lines(p, n, ahead); }
__attribute__((target("avx2"))) static uint64_t read_avx2(const uint8_t *p, size_t n, size_t ahead) { return read_lines(p, n, ahead); }
static uint64_t read_sse2(const uint8_t *p, size_t n, size_t ahead) { return read_lines(p, n, ahead); }

uint64_t read_memory(const uint8_t *p, size_t n, size_t ahead) {
    if (__builtin_cpu_supports("avx512f")) return read_avx512(p, n, ahead);
    return (__builtin_cpu_supports("avx2") ? read_avx2 : read_sse2)(p, n, ahead);
}

__attribute__((target("avx2,fma"))) double fma_avx2(int64_t rounds) {
    __m256 sums[SUMS], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    EACH(i, SUMS) CLEAR(sums[i], _mm256_setzero_ps());
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, SUMS) sums[i] = _mm256_fmadd_ps(a, b, sums[i]);
    EACH(i, SUMS) UNKNOWN(sums[i]);
    return 2.0 * 8 * SUMS * (double)rounds;
}

__attribute__((target("avx512f"))) double fma_avx512(int64_t rounds) {
    __m512 sums[SUMS], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    EACH(i, SUMS) CLEAR(sums[i], _mm512_setzero_ps());
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, SUMS) sums[i] = _mm512_fmadd_ps(a, b, sums[i]);
    EACH(i, SUMS) UNKNOWN(sums[i]);
    return 2.0 * 16 * SUMS * (double)rounds;
}

/* Codes of four bits times signed bytes: eight products in each lane of 16 bits stay below 8 * 2 * 15 * 128 < 2^15. */
#define GROUP 8
#define ROWS 4

__attribute__((target("avx2"))) double nibbles_avx2(int64_t rounds) {
    __m256i codes = _mm256_set1_epi8(15), x = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1), sums[ROWS];
    EACH(i, ROWS) CLEAR(sums[i], _mm256_setzero_si256());
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, ROWS) {
            __m256i short_sum = _mm256_setzero_si256();
            EACH(j, GROUP) {
                UNKNOWN(codes);
                short_sum = _mm256_add_epi16(short_sum, _mm256_maddubs_epi16(codes, x));
            }
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(short_sum, ones));
        }
    EACH(i, ROWS) UNKNOWN(sums[i]);
    return 2.0 * 32 * GROUP * ROWS * (double)rounds;
}

__attribute__((target("avx512f,avx512bw"))) double nibbles_avx512(int64_t rounds) {
    __m512i codes = _mm512_set1_epi8(15), x = _mm512_set1_epi8(-128), ones = _mm512_set1_epi16(1), sums[ROWS];
    EACH(i, ROWS) CLEAR(sums[i], _mm512_setzero_si512());
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, ROWS) {
            __m512i short_sum = _mm512_setzero_si512();
            EACH(j, GROUP) {
                UNKNOWN(codes);
                short_sum = _mm512_add_epi16(short_sum, _mm512_maddubs_epi16(codes, x));
            }
            sums[i] = _mm512_add_epi32(sums[i], _mm512_madd_epi16(short_sum, ones));
        }
    EACH(i, ROWS) UNKNOWN(sums[i]);
    return 2.0 * 64 * GROUP * ROWS * (double)rounds;
}

__attribute__((target("avx2,avxvnni"))) double dot_avxvnni(int64_t rounds) {
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5), sums[SUMS];
    EACH(i, SUMS) CLEAR(sums[i], _mm256_setzero_si256());
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, SUMS) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
    EACH(i, SUMS) UNKNOWN(sums[i]);
    return 2.0 * 32 * SUMS * (double)rounds;
}

__attribute__((target("avx512f,avx512vnni"))) double dot_avx512vnni(int64_t rounds) {
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5), sums[SUMS];
    EACH(i, SUMS) CLEAR(sums[i], _mm512_setzero_si512());
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, SUMS) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
    EACH(i, SUMS) UNKNOWN(sums[i]);
    return 2.0 * 64 * SUMS * (double)rounds;
}

#elif defined(__aarch64__)
#include <arm_neon.h>
#define VECTOR(v) "w"(v)
#define WIDE_SUMS 16 /* up to four a cycle */

uint64_t read_memory(const uint8_t *p, size_t n, size_t ahead) { return read_lines(p, n, ahead); }

double fma_neon(int64_t rounds) {
    float32x4_t sums[WIDE_SUMS], a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
    EACH(i, WIDE_SUMS) CLEAR(sums[i], vdupq_n_f32(0));
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, WIDE_SUMS) sums[i] = vfmaq_f32(sums[i], a, b);
    EACH(i, WIDE_SUMS) UNKNOWN(sums[i]);
    return 2.0 * 4 * WIDE_SUMS * (double)rounds;
}

double long_neon(int64_t rounds) {
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    int32x4_t sums[SUMS];
    EACH(i, SUMS) CLEAR(sums[i], vdupq_n_s32(0));
    for (int64_t r = 0; r < rounds; r++)
        EACH(i, SUMS) {
            UNKNOWN(a);
            int16x8_t products = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            sums[i] = vpadalq_s16(sums[i], vmlal_high_s8(products, a, b));
        }
    EACH(i, SUMS) UNKNOWN(sums[i]);
    return 2.0 * 16 * SUMS * (double)rounds;
}

double dot_neon(int64_t rounds) {
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    int32x4_t sums[WIDE_SUMS];
    EACH(i, WIDE_SUMS) CLEAR(sums[i], vdupq_n_s32(0));
    for (int64_t r = 0; r < rounds; r++) EACH(i, WIDE_SUMS) sums[i] = vdotq_s32(sums[i], a, b);
    EACH(i, WIDE_SUMS) UNKNOWN(sums[i]);
    return 2.0 * 16 * WIDE_SUMS * (double)rounds;
}

double matrix_neon(int64_t rounds) {
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    int32x4_t sums[WIDE_SUMS];
    EACH(i, WIDE_SUMS) CLEAR(sums[i], vdupq_n_s32(0));
    for (int64_t r = 0; r < rounds; r++) EACH(i, WIDE_SUMS) sums[i] = vmmlaq_s32(sums[i], a, b);
    EACH(i, WIDE_SUMS) UNKNOWN(sums[i]);
    return 2.0 * 32 * WIDE_SUMS * (double)rounds;
}

#else
#error "the peaks are written for x86-64 and AArch64 only"
#endif
