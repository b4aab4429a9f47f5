/* A scale of one byte is looked up where there is a cache: one load, from which a vector is filled without a further step (one row of x in
   q8 on Zen 5: mxfp4 75 to 94 G operations/s). f(0), f(1), .. f(255) as the rows of such a table. */
#pragma once
#define CBQ_EACH_4(f, x) f(x), f(x + 1), f(x + 2), f(x + 3)
#define CBQ_EACH_16(f, x) CBQ_EACH_4(f, x), CBQ_EACH_4(f, x + 4), CBQ_EACH_4(f, x + 8), CBQ_EACH_4(f, x + 12)
#define CBQ_EACH_64(f, x) CBQ_EACH_16(f, x), CBQ_EACH_16(f, x + 16), CBQ_EACH_16(f, x + 32), CBQ_EACH_16(f, x + 48)
#define CBQ_EACH_BYTE(f) CBQ_EACH_64(f, 0), CBQ_EACH_64(f, 64), CBQ_EACH_64(f, 128), CBQ_EACH_64(f, 192)
