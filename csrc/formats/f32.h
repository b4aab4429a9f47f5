/* f32: IEEE binary32. One element is one block.
   y = the value */
CBQ_FN float cbq_f32_value(const uint8_t *p) { return cbq_as_f32(cbq_u32(p, 4)); }

#define CBQ_FORMAT_f32(BLOCK, PLAIN) PLAIN(f32, 0, 4, VECTOR, "IEEE binary32")
