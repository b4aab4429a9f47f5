// ucontext enters a new stack; from then on _setjmp and _longjmp change stacks, without the system calls of swapcontext.
// (glibc's checked longjmp refuses to jump to another stack: built with -U_FORTIFY_SOURCE.)
#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace shim {

static const size_t STACK_BYTES = 128 << 10;
static jmp_buf home;
Fiber *Fiber::running;

Fiber::Fiber(void (*f)()) : run(f), guard_bytes((size_t)sysconf(_SC_PAGESIZE)) {
    void *p = mmap(NULL, guard_bytes + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p, guard_bytes, PROT_NONE) != 0) {
        perror("shim: no memory for a thread's stack");
        abort();
    }
    stack = (char *)p;
}

Fiber::~Fiber() { munmap(stack, guard_bytes + STACK_BYTES); }

void Fiber::entry() {
    for (;;) {
        running->run();
        leave();
    }
}

void Fiber::resume() {
    running = this;
    if (_setjmp(home) == 0) {
        if (started) _longjmp(point, 1);
        started = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = stack + guard_bytes;
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link = NULL;
        makecontext(&context, entry, 0);
        setcontext(&context);
    }
    running = NULL;
}

void Fiber::leave() {
    if (_setjmp(running->point) == 0) _longjmp(home, 1);
}

void Fiber::leave_for_good() { _longjmp(home, 1); }

} // namespace shim
