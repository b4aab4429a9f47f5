#include "status.h"

#include <stdarg.h>
#include <stdio.h>

cbq_code cbq_fail(cbq_status *st, cbq_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(st->text, sizeof st->text, format, args);
    va_end(args);
    st->code = code;
    return code;
}
