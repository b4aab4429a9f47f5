/* How C functions fail: a code and a text that names the argument, what was expected and what came. bind/convert.c turns
   it into a Python exception; nothing else prints, aborts or raises. */
#pragma once

typedef enum { CBQ_OK = 0, CBQ_BAD_VALUE, CBQ_BAD_TYPE, CBQ_NO_MEMORY } cbq_code;

typedef struct {
    cbq_code code;
    char text[400];
} cbq_status;

/* Fills st and returns code, so that a check is one line: if (..) return cbq_fail(st, CBQ_BAD_VALUE, "..", ..); */
cbq_code cbq_fail(cbq_status *st, cbq_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
