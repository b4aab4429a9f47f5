// Addresses that are wrong: without access (a signal while a kernel's thread runs), misaligned, or out of an array whose size
// g++ knows (kernels are built with its checks of alignment and bounds, which call the functions below instead of libubsan's).
#include "memory.h"
#include "threads.h"

#include <pthread.h>
#include <signal.h>

namespace shim {

static struct sigaction before[2];
static const int SIGNALS[2] = {SIGSEGV, SIGBUS};
static stack_t stack_before;
static pthread_t launcher;
static char handler_stack[64 << 10];

static void handler(int signal, siginfo_t *info, void *) {
    if (!Fiber::running || !pthread_equal(pthread_self(), launcher)) { // not ours: as if we were not here
        sigaction(signal, &before[signal == SIGBUS], NULL);
        return;
    }
    const Thread &t = self();
    if (t.fiber.overflowed(info->si_addr)) fail("a thread's stack is full");
    if (beside_dynamic(info->si_addr)) fail("read or wrote beside dynamic shared memory");
    std::string where = describe(info->si_addr);
    const Place &last = t.place;
    if (!last.name) fail("read or wrote %p, %s", info->si_addr, where.c_str());
    fail("read or wrote %p, %s, at or after %s (%s:%d)", info->si_addr, where.c_str(), last.name, last.file, last.line);
}

void catch_faults() {
    launcher = pthread_self();
    stack_t own = {};
    own.ss_sp = handler_stack;
    own.ss_size = sizeof handler_stack;
    sigaltstack(&own, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER; // it does not return, so the signal must not stay blocked
    for (int i = 0; i < 2; i++) sigaction(SIGNALS[i], &action, &before[i]);
}

void release_faults() {
    for (int i = 0; i < 2; i++) sigaction(SIGNALS[i], &before[i], NULL);
    sigaltstack(&stack_before, NULL);
}

// The data that g++ hands to the checks' functions, as far as it is used (libsanitizer/ubsan/ubsan_value.h).
struct Location {
    const char *file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind, info;
    char name[1];
};
struct Mismatch {
    Location at;
    const Type *type;
    unsigned char log_alignment, kind;
};
struct OutOfBounds {
    Location at;
    const Type *array, *index;
};

static void mismatch(const Mismatch &m, uintptr_t address) {
    if (!Fiber::running) return;
    uintptr_t alignment = (uintptr_t)1 << m.log_alignment;
    const char *what = address % alignment ? "at no multiple of its alignment" : "past the end of the array";
    fail("%s at %p (%s:%u): %s", m.type->name, (const void *)address, m.at.file, m.at.line, what);
}

} // namespace shim

extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(shim::Mismatch *m, uintptr_t address) {
    shim::mismatch(*m, address);
}
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(shim::OutOfBounds *o, uintptr_t index) {
    if (shim::Fiber::running) shim::fail("index %lld of %s (%s:%u)", (long long)index, o->array->name, o->at.file, o->at.line);
}
