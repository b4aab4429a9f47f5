/* i64: 64-bit signed integer. One element is one block.
   y = the value, rounded once to float32 */
CBQ_FN float cbq_i64_value(const uint8_t *p) { int64_t v; memcpy(&v, p, 8); return (float)v; }

#define CBQ_FORMAT_i64(BLOCK, PLAIN) PLAIN(i64, 27, 8, SCALAR, "64-bit signed integer")
