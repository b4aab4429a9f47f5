// The threads of a launch, their warps and blocks.
#pragma once
#include "cuda_runtime.h"
#include "fiber.h"
#include "instructions.cuh"
#include "launch.cuh"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shim {

// Where a thread waits. Two threads are at the same instruction if the call that they return to is the same.
struct Place {
    const char *name, *file;
    int line;
    const void *code;
    bool operator==(const Place &other) const { return name == other.name && code == other.code; }
};

struct Copy {
    char *to;
    const char *from;
    Place place;
};

struct Warp;
struct Block;

struct Thread : Indices { // first, so that `indices` is the thread
    enum State { RUNS, AT_COLLECTIVE, AT_BARRIER, AT_MBARRIER, ENDED } state;
    unsigned lane;
    Warp *warp;
    Block *of;
    Place place;       // where it waits
    void *operands;    // of the collective
    std::vector<Copy> open;               // asynchronous copies since the last commit
    std::deque<std::vector<Copy>> groups; // those committed, the oldest first
    Fiber fiber;
    explicit Thread(void (*run)()) : fiber(run) {}
};

// A barrier in shared memory, of hopper.cpp.
struct Barrier {
    uint32_t arrivals, missing; // of this phase
    int64_t bytes;              // announced and not landed
    uint64_t phase;             // those before have ended
    const Thread *not_fenced_by;
    std::vector<Thread *> waiting;
};
struct Flight { // a copy in bulk, on its way
    char *to;
    const char *from;
    uint32_t bytes;
    Barrier *barrier;
};
struct WarpProduct { // a warp's part of a product that has begun
    float *c[32];
    const uint32_t *a[32];
    int columns;
    uint32_t address, eight_columns;
    const char *memory; // at the address
};

struct Warp {
    Thread *lanes[32];
    unsigned running, waiting;
    unsigned priority; // the highest goes first
    Place place;       // of those that wait
    std::deque<WarpProduct> queue; // the oldest first
    std::deque<unsigned> groups;   // how many of those are of which group, and of none yet
    unsigned open = 0;
    bool fenced = false;
    size_t products = 0; // so far
    unsigned registers = 0; // of a thread, where it has asked for a number
};

struct Block {
    bool active = false;
    uint3 index;
    std::vector<Thread *> threads;
    std::vector<Warp> warps;
    unsigned at_barrier, ended;
    Place place; // of those at the barrier
    char *dynamic;             // its dynamic shared memory
    std::vector<char> fixed_shared; // its static shared memory, while another block has the place
    std::map<uint64_t *, Barrier> barriers;
    std::vector<Flight> flights;
    std::map<unsigned, std::vector<std::pair<uint64_t, int>>> warpgroups; // the products of each four warps
    unsigned slowness; // of what happens by itself
};

// The launch that runs.
struct Run {
    const Launch *launch = nullptr;
    std::string kernel;
    bool failed = false;
};
extern Run run;

static inline Thread &self() { return *static_cast<Thread *>(indices); }

uint32_t random32();
void seed_random(uint64_t seed);
static inline bool one_in(uint32_t n) { return random32() % n == 0; }

// Keeps the first thing that went wrong, with the kernel and the thread that runs; `fail` ends that thread too.
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string name_of_function(const void *function);

void maybe_pause(); // lets others go first, now and then
void hold(Thread &t, Thread::State state, const Place &place);
void release(Thread &t);
bool is_shared(const void *p, size_t nbytes);
const void *shared_pointer(uint32_t address); // of shared_address

// Lets copies land and products be worked out, now and then or because nothing else is left to do: false where nothing was done.
bool something_happens(Block &b, bool must);
void check_end(const Thread &t); // nothing is left of it

// Shared memory: of variables, and dynamic. A few blocks run at a time, each in its slot; a slot's dynamic memory ends at a
// page without access.
struct Span {
    char *begin;
    size_t bytes;
    bool holds(const void *p, size_t n) const { return (const char *)p >= begin && (const char *)p + n <= begin + bytes; }
};
extern Span static_shared; // that of the block that runs
void find_static_shared();
enum { SLOTS = 4, MOST_SHARED = 227 << 10 };
char *dynamic_place(unsigned slot, size_t bytes); // filled with 0xFF
bool dynamic_intact(unsigned slot, size_t bytes); // nothing was written beside it
bool beside_dynamic(const void *address);         // in a page without access

// Faults of memory, while threads run.
void catch_faults();
void release_faults();

} // namespace shim
