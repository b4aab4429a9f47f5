/* f16: IEEE binary16. One element is one block.
   y = the value, exact in float32 */
CBQ_FN float cbq_f16_value(const uint8_t *p) { return w_f16(p); }

#define CBQ_FORMAT_f16(BLOCK, PLAIN) PLAIN(f16, 1, 2, VECTOR, "IEEE binary16")
