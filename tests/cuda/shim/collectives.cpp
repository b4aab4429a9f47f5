// What threads do together: barriers, collectives of a warp, and copies that land when they like.
#include "threads.h"

#include <string.h>

namespace shim {

void release(Thread &t) {
    t.state = Thread::RUNS;
    t.warp->running++;
}

void hold(Thread &t, Thread::State state, const Place &place) {
    t.state = state;
    t.place = place;
    t.warp->running--;
}

static void must_be_the_same(const Place &mine, const Place &theirs) {
    if (mine == theirs) return;
    fail("is at %s (%s:%d) while others wait at %s (%s:%d)%s", mine.name, mine.file, mine.line, theirs.name, theirs.file, theirs.line,
         mine.line == theirs.line ? ", the same line, reached on another way" : "");
}

void barrier(const char *name, const char *file, int line) {
    Thread &t = self();
    Block &b = *t.of;
    Place place = {name, file, line, __builtin_return_address(0)};
    if (b.at_barrier++ == 0) b.place = place;
    must_be_the_same(place, b.place);
    hold(t, Thread::AT_BARRIER, place);
    if (b.at_barrier == b.threads.size()) {
        b.at_barrier = 0;
        for (Thread *other : b.threads) release(*other);
    }
    Fiber::leave();
}

static void meet_at(const Place &place, void *mine, void (*work_out)(void *const lanes[32])) {
    Thread &t = self();
    Warp &w = *t.warp;
    if (w.waiting++ == 0) w.place = place;
    must_be_the_same(place, w.place);
    t.operands = mine;
    hold(t, Thread::AT_COLLECTIVE, place);
    if (w.waiting == 32) {
        void *all[32];
        for (int i = 0; i < 32; i++) all[i] = w.lanes[i]->operands;
        if (work_out) work_out(all);
        w.waiting = 0;
        for (Thread *lane : w.lanes) release(*lane);
    }
    Fiber::leave();
}

void meet(const char *name, const char *file, int line, void *mine, void (*work_out)(void *const lanes[32])) {
    meet_at({name, file, line, __builtin_return_address(0)}, mine, work_out);
}

void meet_warp(const char *name, const char *file, int line) {
    meet_at({name, file, line, __builtin_return_address(0)}, NULL, NULL);
}

void maybe_pause() {
    if (one_in(16)) Fiber::leave();
}

void *dynamic_shared() { return self().of->dynamic; }

// Dynamic shared memory comes first: a matrix's descriptor has 18 bits of an address, and in a library of many kernels the
// static memory of all is together. It begins at a multiple of 128, and at none of 256.
enum { DYNAMIC_AT = 1024 + 128, STATIC_AT = 1 << 18 };
static_assert((int)DYNAMIC_AT + (int)MOST_SHARED <= (int)STATIC_AT, "below the static memory");

uint32_t shared_address(const void *p) {
    if (static_shared.holds(p, 1)) return STATIC_AT + (uint32_t)((const char *)p - static_shared.begin);
    return DYNAMIC_AT + (uint32_t)((const char *)p - self().of->dynamic);
}
const void *shared_pointer(uint32_t address) {
    return address < STATIC_AT ? self().of->dynamic + ((int64_t)address - DYNAMIC_AT) : static_shared.begin + (address - STATIC_AT);
}

static void land(std::vector<Copy> &copies) {
    for (const Copy &c : copies) {
        self().place = c.place; // what a fault is reported with
        memcpy(c.to, c.from, 16);
    }
    copies.clear();
}

bool is_shared(const void *p, size_t nbytes) {
    Span dynamic = {self().of->dynamic, run.launch->shared_bytes};
    return dynamic.holds(p, nbytes) || static_shared.holds(p, nbytes);
}

void check_row(const void *row, const char *name, const char *file, int line) {
    self().place = {name, file, line, NULL};
    if ((uintptr_t)row % 16 != 0) fail("%s (%s:%d) of %p: an address is no multiple of 16", name, file, line, row);
    if (!is_shared(row, 16)) fail("%s (%s:%d) of %p: a row is not in shared memory", name, file, line, row);
}

void copy_async(void *shared, const void *global, const char *file, int line) {
    Thread &t = self();
    Copy c = {(char *)shared, (const char *)global, {"cu_copy16_async", file, line, NULL}};
    t.place = c.place;
    const char *wrong = NULL;
    if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0) wrong = "an address is no multiple of 16";
    else if (!is_shared(shared, 16)) wrong = "the destination is not in shared memory";
    else if (is_shared(global, 1)) wrong = "the source is in shared memory";
    if (wrong) fail("cu_copy16_async (%s:%d) from %p to %p: %s", file, line, global, shared, wrong);
    char now[16];
    memcpy(now, global, 16); // a fault is the copy's, not the wait's
    asm volatile("" ::"r"(now) : "memory");
    if (one_in(2)) memcpy(shared, now, 16);
    else t.open.push_back(c);
    maybe_pause();
}

void commit() {
    Thread &t = self();
    t.groups.push_back(std::move(t.open));
    t.open.clear();
    maybe_pause();
}

void wait(unsigned groups_left) {
    Thread &t = self();
    while (t.groups.size() > groups_left) {
        land(t.groups.front());
        t.groups.pop_front();
    }
    maybe_pause();
}

} // namespace shim
