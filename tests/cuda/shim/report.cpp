// What went wrong, in words.
#include "control.h"
#include "threads.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace shim {

static char text[2000]; // no memory is asked for: a fault may have come anywhere

static void write(const char *format, va_list values) {
    if (run.failed) return;
    run.failed = true;
    int n = snprintf(text, sizeof text, "kernel %s", run.kernel.c_str());
    if (indices) {
        const uint3 &b = indices->block, &t = indices->thread;
        n += snprintf(text + n, sizeof text - n, ", block (%u, %u, %u), thread (%u, %u, %u)", b.x, b.y, b.z, t.x, t.y, t.z);
    }
    n += snprintf(text + n, sizeof text - n, ": ");
    vsnprintf(text + n, sizeof text - n, format, values);
}

void report(const char *format, ...) {
    va_list values;
    va_start(values, format);
    write(format, values);
    va_end(values);
}

void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    write(format, values);
    va_end(values);
    Fiber::leave_for_good();
}

void note(const char *message) { snprintf(text, sizeof text, "%s", message); }

std::string name_of_function(const void *function) {
    Dl_info found;
    if (dladdr(function, &found) == 0 || found.dli_saddr != function) return "without a name";
    int status;
    char *plain = abi::__cxa_demangle(found.dli_sname, NULL, NULL, &status);
    std::string name = status == 0 ? plain : found.dli_sname;
    free(plain);
    return name;
}

} // namespace shim

extern "C" const char *shim_error(void) { return shim::text; }
extern "C" void shim_clear_error(void) { shim::text[0] = 0; }
