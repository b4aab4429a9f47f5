// Stacks that take turns: a fiber runs until it leaves, and goes on from there when it is resumed.
#pragma once
#include <setjmp.h>
#include <stddef.h>

namespace shim {

class Fiber {
public:
    // Calls `run` again and again, on its own stack: `run` leaves by returning or in the middle.
    explicit Fiber(void (*run)());
    ~Fiber();
    Fiber(const Fiber &) = delete;
    void operator=(const Fiber &) = delete;

    void resume();
    void restart() { started = false; } // what it was in the middle of is forgotten
    bool overflowed(const void *address) const { return address >= stack && address < stack + guard_bytes; }

    static void leave();                           // back to where it was resumed
    [[noreturn]] static void leave_for_good();     // the same; to be restarted
    static Fiber *running;                         // NULL outside

private:
    static void entry();
    void (*run)();
    char *stack;
    size_t guard_bytes;
    bool started = false;
    jmp_buf point;
};

} // namespace shim
