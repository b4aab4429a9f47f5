/* i32: 32-bit signed integer. One element is one block.
   y = the value, rounded once to float32 */
CBQ_FN float cbq_i32_value(const uint8_t *p) { return (float)(int32_t)cbq_u32(p, 4); }

#define CBQ_FORMAT_i32(BLOCK, PLAIN) PLAIN(i32, 26, 4, VECTOR, "32-bit signed integer")
