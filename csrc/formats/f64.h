/* f64: IEEE binary64. One element is one block.
   y = the value, rounded once to float32 */
CBQ_FN float cbq_f64_value(const uint8_t *p) { double v; memcpy(&v, p, 8); return (float)v; }

#define CBQ_FORMAT_f64(BLOCK, PLAIN) PLAIN(f64, 28, 8, VECTOR, "IEEE binary64")
