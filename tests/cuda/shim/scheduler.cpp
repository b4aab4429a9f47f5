// A launch: blocks in random order, a few at a time, warps that drift apart, lanes in any order. A thread runs until it waits.
#include "control.h"
#include "memory.h"
#include "threads.h"

#include <algorithm>
#include <mutex>
#include <string.h>

namespace shim {

Indices *indices;
Run run;
static std::mutex one_launch;
static std::vector<std::unique_ptr<Thread>> pool; // their stacks are used again
static Block slots[SLOTS];
static unsigned placed; // the slot whose static memory is in place
static shim_launcher launcher;
static std::string launched; // names, each with a blank behind it
static uint64_t random_state = 1, turns_left, turn_limit, launches;

uint32_t random32() {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX
    return (uint32_t)(random_state >> 33);
}

template <class T> static void shuffle(T *items, size_t n) {
    for (size_t i = n; i > 1; i--) std::swap(items[i - 1], items[random32() % i]);
}

static void thread_main() {
    run.launch->call(run.launch->pair);
    Thread &t = self();
    check_end(t);
    t.state = Thread::ENDED;
    t.warp->running--;
    t.of->ended++;
}

static void start_thread(Thread &t, Block &b, unsigned i) {
    const dim3 &n = run.launch->block;
    static_cast<Indices &>(t) = {{i % n.x, i / n.x % n.y, i / n.x / n.y}, b.index, n, run.launch->grid};
    t.state = Thread::RUNS;
    t.lane = i % 32;
    t.warp = &b.warps[i / 32];
    t.of = &b;
    t.place = {};
    t.open.clear();
    t.groups.clear();
    t.warp->lanes[t.lane] = &t;
}

static void start_block(unsigned slot, uint32_t number) {
    const dim3 &grid = run.launch->grid, &n = run.launch->block;
    Block &b = slots[slot];
    unsigned threads = n.x * n.y * n.z;
    b.active = true;
    b.index = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    b.at_barrier = b.ended = 0;
    b.threads.resize(threads);
    b.warps.assign(threads / 32, Warp());
    for (Warp &w : b.warps) {
        w.running = 32;
        w.priority = random32();
    }
    while (pool.size() < (slot + 1) * (size_t)threads) pool.emplace_back(new Thread(thread_main));
    for (unsigned i = 0; i < threads; i++) {
        b.threads[i] = pool[slot * (size_t)threads + i].get();
        start_thread(*b.threads[i], b, i);
    }
    b.dynamic = dynamic_place(slot, run.launch->shared_bytes);
    b.barriers.clear();
    b.flights.clear();
    b.warpgroups.clear();
    b.slowness = 1u << random32() % 8;
    b.fixed_shared.assign(static_shared.bytes, '\xff');
    if (slot == placed) memset(static_shared.begin, 0xFF, static_shared.bytes);
}

static void put_in_place(unsigned slot) {
    if (slot == placed) return;
    if (slots[placed].active) memcpy(slots[placed].fixed_shared.data(), static_shared.begin, static_shared.bytes);
    memcpy(static_shared.begin, slots[slot].fixed_shared.data(), static_shared.bytes);
    placed = slot;
}

// All wait and nobody comes: who, and where.
static void report_deadlock(const Block &b) {
    struct Kind {
        Thread::State state;
        Place place;
        unsigned count, first;
    };
    std::vector<Kind> kinds;
    for (unsigned i = 0; i < b.threads.size(); i++) {
        const Thread &t = *b.threads[i];
        Place place = t.state == Thread::ENDED ? Place() : t.place;
        auto same = [&](const Kind &k) { return k.state == t.state && k.place == place; };
        auto found = std::find_if(kinds.begin(), kinds.end(), same);
        if (found == kinds.end()) kinds.push_back({t.state, place, 1, i});
        else found->count++;
    }
    std::string text;
    for (const Kind &k : kinds) {
        char one[400];
        if (k.state == Thread::ENDED) snprintf(one, sizeof one, "; %u have ended, the first is thread %u", k.count, k.first);
        else snprintf(one, sizeof one, "; %u wait at %s (%s:%d), the first is thread %u", k.count, k.place.name, k.place.file, k.place.line, k.first);
        text += one;
    }
    indices = b.threads[0];
    report("no thread of the block can go on%s", text.c_str());
}

// One warp's turn: some or all of the lanes that can run.
static void take_turn(Block &b) {
    Warp *w = NULL;
    for (Warp &other : b.warps)
        if (other.running && (!w || other.priority > w->priority)) w = &other;
    bool happened = something_happens(b, !w);
    if (!w) {
        if (!happened) report_deadlock(b);
        return;
    }
    if (one_in(8)) w->priority = random32();
    Thread *lanes[32];
    unsigned n = 0;
    for (Thread *lane : w->lanes)
        if (lane->state == Thread::RUNS) lanes[n++] = lane;
    shuffle(lanes, n);
    if (one_in(4)) n = 1 + random32() % n;
    for (unsigned i = 0; i < n && !run.failed; i++) {
        indices = lanes[i];
        lanes[i]->fiber.resume();
    }
}

static void end_block(unsigned slot) {
    Block &b = slots[slot];
    b.active = false;
    indices = b.threads[0];
    if (!b.flights.empty()) report("the block ended while %zu copies in bulk were on their way", b.flights.size());
    if (dynamic_intact(slot, run.launch->shared_bytes)) return;
    report("the block wrote past the end of its %zu bytes of dynamic shared memory, or before them", run.launch->shared_bytes);
}

static void run_blocks() {
    const dim3 &grid = run.launch->grid;
    std::vector<uint32_t> waiting((size_t)grid.x * grid.y * grid.z);
    for (size_t i = 0; i < waiting.size(); i++) waiting[i] = (uint32_t)i;
    shuffle(waiting.data(), waiting.size());
    unsigned resident = 1 + random32() % SLOTS, slot = 0, turns_of_block = 2u << random32() % 5;
    for (Block &b : slots) b.active = false;
    for (;;) {
        for (unsigned i = 0; i < resident && !waiting.empty(); i++) {
            if (slots[i].active) continue;
            start_block(i, waiting.back());
            waiting.pop_back();
        }
        unsigned active = 0;
        for (unsigned i = 0; i < resident; i++) active += slots[i].active;
        if (active == 0) return;
        if (!slots[slot].active || one_in(turns_of_block)) {
            do slot = random32() % resident;
            while (!slots[slot].active);
        }
        put_in_place(slot);
        if (turn_limit && turns_left-- == 0) report("more than %llu turns of warps", (unsigned long long)turn_limit);
        else take_turn(slots[slot]);
        if (!run.failed && slots[slot].ended == slots[slot].threads.size()) end_block(slot);
        if (run.failed) return;
    }
}

static cudaError_t check(const Launch &l) {
    uint64_t blocks = (uint64_t)l.grid.x * l.grid.y * l.grid.z, threads = (uint64_t)l.block.x * l.block.y * l.block.z;
    if (blocks == 0 || l.grid.x > 0x7fffffff || l.grid.y > 65535 || l.grid.z > 65535) return cudaErrorInvalidConfiguration;
    if (threads == 0 || threads > 1024) return cudaErrorInvalidConfiguration;
    if (l.shared_bytes > (size_t)dynamic_limit(l.kernel)) return cudaErrorInvalidValue;
    if (threads % 32 != 0 || blocks > 1u << 24) {
        report("%llu blocks of %llu threads: the shim runs whole warps only, and up to 2^24 blocks", (unsigned long long)blocks,
               (unsigned long long)threads);
        return cudaErrorNotSupported;
    }
    return cudaSuccess;
}

cudaError_t launch(const Launch &what, cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(one_launch);
    cudaError_t error = enter("cu_launch");
    if (error == cudaSuccess) error = check_stream(stream);
    if (error == cudaSuccess) {
        run = {&what, name_of_function(what.kernel), false};
        error = check(what);
    }
    if (error != cudaSuccess) return set_last_error(error);
    launches++;
    launched += run.kernel + ' ';
    if (launcher) {
        const unsigned grid[3] = {what.grid.x, what.grid.y, what.grid.z};
        int failed = launcher(run.kernel.c_str(), grid, what.block.x, what.shared_bytes, what.args, what.args_bytes);
        return set_last_error(failed ? cudaErrorLaunchFailure : cudaSuccess);
    }
    turns_left = turn_limit;
    find_static_shared();
    catch_faults();
    run_blocks();
    release_faults();
    indices = NULL;
    if (run.failed)
        for (auto &t : pool) t->fiber.restart();
    else if (std::string damage = damaged_fences(); !damage.empty()) report("%s", damage.c_str());
    return set_last_error(run.failed ? cudaErrorLaunchFailure : cudaSuccess);
}

} // namespace shim

extern "C" void shim_seed(unsigned seed) { shim::random_state = seed * 0x9E3779B97F4A7C15u + 1; }
extern "C" void shim_launch_through(shim_launcher instead) { shim::launcher = instead; }
extern "C" const char *shim_launched(void) {
    static std::string names; // until the next call
    names.swap(shim::launched);
    shim::launched.clear();
    return names.c_str();
}
extern "C" void shim_limit(uint64_t turns) { shim::turn_limit = turns; }
extern "C" uint64_t shim_launches(void) { return shim::launches; }
