/* bf16: bfloat16, the upper half of a binary32. One element is one block.
   y = the value, exact in float32 */
CBQ_FN float cbq_bf16_value(const uint8_t *p) { return cbq_as_f32(cbq_u16(p, 2) << 16); }

#define CBQ_FORMAT_bf16(BLOCK, PLAIN) PLAIN(bf16, 30, 2, VECTOR, "bfloat16, the upper half of a binary32")
