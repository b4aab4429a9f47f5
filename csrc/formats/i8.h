/* i8: 8-bit signed integer. One element is one block.
   y = the value */
CBQ_FN float cbq_i8_value(const uint8_t *p) { return (float)(int8_t)p[0]; }

#define CBQ_FORMAT_i8(BLOCK, PLAIN) PLAIN(i8, 24, 1, VECTOR, "8-bit signed integer")
