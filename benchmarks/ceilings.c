/* A fill and a copy with streaming stores, which go past the cache: the fastest way to write much memory on many machines,
   and one that neither the C library nor NumPy offers. benchmarks/ceilings.py compiles it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE 64

#if defined(__SSE2__)
#include <emmintrin.h>
static void stream_lines(uint8_t *p, uint8_t byte, size_t n) {
    const __m128i v = _mm_set1_epi8((char)byte);
    for (const uint8_t *end = p + n; p != end; p += LINE)
        for (int i = 0; i < LINE; i += 16) _mm_stream_si128((__m128i *)(p + i), v);
    _mm_sfence();
}
static void copy_lines(uint8_t *p, const uint8_t *from, size_t n) {
    for (const uint8_t *end = p + n; p != end; p += LINE, from += LINE)
        for (int i = 0; i < LINE; i += 16) _mm_stream_si128((__m128i *)(p + i), _mm_loadu_si128((const __m128i *)(from + i)));
    _mm_sfence();
}
#elif defined(__aarch64__)
#include <arm_neon.h>
static void stream_lines(uint8_t *p, uint8_t byte, size_t n) {
    const uint8x16_t v = vdupq_n_u8(byte);
    for (const uint8_t *end = p + n; p != end; p += LINE)
        __asm__ volatile("stnp %q1, %q1, [%0]\n\tstnp %q1, %q1, [%0, #32]" : : "r"(p), "w"(v) : "memory");
}
static void copy_lines(uint8_t *p, const uint8_t *from, size_t n) {
    for (const uint8_t *end = p + n; p != end; p += LINE, from += LINE) {
        const uint8x16_t a = vld1q_u8(from), b = vld1q_u8(from + 16), c = vld1q_u8(from + 32), d = vld1q_u8(from + 48);
        __asm__ volatile("stnp %q1, %q2, [%0]\n\tstnp %q3, %q4, [%0, #32]" : : "r"(p), "w"(a), "w"(b), "w"(c), "w"(d) : "memory");
    }
}
#else
#error "streaming stores are written for x86-64 and AArch64 only"
#endif

void stream_fill(uint8_t *p, uint8_t byte, size_t n) {
    size_t head = (size_t)(-(uintptr_t)p & (LINE - 1));
    if (head > n) head = n;
    size_t body = (n - head) / LINE * LINE;
    memset(p, byte, head);
    stream_lines(p + head, byte, body);
    memset(p + head + body, byte, n - head - body);
}

void stream_copy(uint8_t *p, const uint8_t *from, size_t n) {
    size_t head = (size_t)(-(uintptr_t)p & (LINE - 1));
    if (head > n) head = n;
    size_t body = (n - head) / LINE * LINE;
    memcpy(p, from, head);
    copy_lines(p + head, from + head, body);
    memcpy(p + head + body, from + head + body, n - head - body);
}
