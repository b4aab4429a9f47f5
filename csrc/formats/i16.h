/* i16: 16-bit signed integer. One element is one block.
   y = the value */
CBQ_FN float cbq_i16_value(const uint8_t *p) { return (float)(int16_t)cbq_u16(p, 2); }

#define CBQ_FORMAT_i16(BLOCK, PLAIN) PLAIN(i16, 25, 2, VECTOR, "16-bit signed integer")
