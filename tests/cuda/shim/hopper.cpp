// What Hopper does by itself: copies in bulk that land when they like, in any order, and tell a barrier; products that read
// their registers, and shared memory, at any time up to the wait for them.
#include "instructions_sm90.cuh"
#include "threads.h"

#include <string.h>

namespace shim {

// ---- barriers ----

static const uint64_t MARK = 0x6d62617272696572; // what is in a barrier's place: nobody may write there

static Barrier &find(uint64_t *barrier, const char *name, const char *file, int line) {
    auto found = self().of->barriers.find(barrier);
    if (found == self().of->barriers.end()) fail("%s (%s:%d) of %p: there is no barrier (yet)", name, file, line, (void *)barrier);
    if (*barrier != MARK) fail("%s (%s:%d) of %p: the barrier was overwritten", name, file, line, (void *)barrier);
    return found->second;
}

void mbarrier_init(uint64_t *barrier, uint32_t arrivals, const char *file, int line) {
    const char *wrong = NULL;
    if ((uintptr_t)barrier % 8 != 0) wrong = "the address is no multiple of 8";
    else if (!is_shared(barrier, 8)) wrong = "it is not in shared memory";
    else if (arrivals == 0 || arrivals >= 1u << 20) wrong = "a number of arrivals that is not from 1 to 2^20 - 1";
    else if (self().of->barriers.count(barrier)) wrong = "it is one already";
    if (wrong) fail("cu_mbarrier_init (%s:%d) of %p: %s", file, line, (void *)barrier, wrong);
    *barrier = MARK;
    self().of->barriers[barrier] = {arrivals, arrivals, 0, 0, &self(), {}};
    maybe_pause();
}

void proxy_fence() {
    for (auto &b : self().of->barriers)
        if (b.second.not_fenced_by == &self()) b.second.not_fenced_by = NULL;
}

static void end_phase_if_all_came(Barrier &b) {
    if (b.missing != 0 || b.bytes != 0) return;
    b.phase++;
    b.missing = b.arrivals;
    for (Thread *t : b.waiting) release(*t);
    b.waiting.clear();
}

void mbarrier_arrive(uint64_t *barrier, uint32_t bytes, const char *name, const char *file, int line) {
    Barrier &b = find(barrier, name, file, line);
    if (bytes >= 1u << 20) fail("%s (%s:%d): %u bytes are too many", name, file, line, bytes);
    if (b.missing == 0) fail("%s (%s:%d) of %p: more arrivals than the barrier has", name, file, line, (void *)barrier);
    b.bytes += bytes;
    b.missing--;
    end_phase_if_all_came(b);
    maybe_pause();
}

void mbarrier_wait(uint64_t *barrier, uint32_t parity, const char *file, int line) {
    Barrier &b = find(barrier, "cu_mbarrier_wait", file, line);
    while (b.phase % 2 == parity) { // it may be again when this thread's turn comes
        b.waiting.push_back(&self());
        hold(self(), Thread::AT_MBARRIER, {"cu_mbarrier_wait", file, line, NULL});
        Fiber::leave();
    }
    maybe_pause();
}

// ---- copies ----

void copy_bulk(void *shared, const void *global, uint32_t bytes, uint64_t *barrier, const char *file, int line) {
    self().place = {"cu_copy_bulk", file, line, NULL};
    Barrier &b = find(barrier, "cu_copy_bulk", file, line);
    const char *wrong = NULL;
    if (((uintptr_t)shared | (uintptr_t)global) % 16 != 0) wrong = "an address is no multiple of 16";
    else if (bytes == 0 || bytes % 16 != 0) wrong = "the size is no multiple of 16, from 16 up";
    else if (!is_shared(shared, bytes)) wrong = "the destination is not in shared memory";
    else if (is_shared(global, 1)) wrong = "the source is in shared memory";
    else if (b.not_fenced_by) wrong = "no cu_proxy_fence since the barrier was made";
    if (wrong) fail("cu_copy_bulk (%s:%d) of %u bytes from %p to %p: %s", file, line, bytes, global, shared, wrong);
    volatile char sum = 0; // a fault is this thread's
    for (uint32_t i = 0; i < bytes; i += 16) sum = (char)(sum + ((const volatile char *)global)[i] + ((const volatile char *)global)[i + 15]);
    self().of->flights.push_back({(char *)shared, (const char *)global, bytes, &b});
    maybe_pause();
}

static void land_one(Block &b) {
    size_t i = random32() % b.flights.size();
    Flight f = b.flights[i];
    b.flights[i] = b.flights.back();
    b.flights.pop_back();
    memcpy(f.to, f.from, f.bytes);
    f.barrier->bytes -= f.bytes;
    end_phase_if_all_came(*f.barrier);
}

// ---- registers ----

// The block has what it got at its launch, which is at most so many for each thread; it is looked at when all warps have asked.
void set_registers(unsigned count) {
    self().warp->registers = count;
    unsigned all = 0, threads = (unsigned)self().of->threads.size(), most = 65536 / threads / 8 * 8 * threads;
    for (const Warp &w : self().of->warps) {
        if (w.registers == 0) return;
        all += 32 * w.registers;
    }
    if (all > most) fail("the warps of the block ask for %u registers, and it has %u: some wait for ever", all, most);
}

// ---- products ----

struct Matrix {
    uint32_t address, eight_columns; // bytes
};

// "Matrix Descriptor Format" of wgmma (PTX ISA), for 128-byte swizzling.
static Matrix matrix_of(const Product &p) {
    Matrix m = {(uint32_t)(p.b & 0x3fff) << 4, (uint32_t)(p.b >> 32 & 0x3fff) << 4};
    const char *wrong = NULL;
    if (p.b >> 62 != 1) wrong = "another swizzling than that of 128 bytes is not modelled";
    else if (p.b & 0x3ff1c000c000c000) wrong = "bits are set that have no meaning";
    else if (p.b >> 49 & 7 || m.address % 1024 >= 128) wrong = "it begins at no multiple of 1024";
    else if (m.address % 128 > 96) wrong = "its sixteen k are not in one row of 128 bytes";
    else if (m.eight_columns % 1024 != 0) wrong = "eight columns are no multiple of 1024 bytes";
    else if (!is_shared(shared_pointer(m.address / 1024 * 1024), (size_t)(p.columns / 8 - 1) * m.eight_columns + 1024))
        wrong = "it is not in shared memory";
    if (wrong) fail("cu_wgmma_bf16 (%s:%d) of the matrix %016llx: %s", p.file, p.line, (unsigned long long)p.b, wrong);
    return m;
}

static double bf16_at(const void *p) {
    uint16_t half;
    memcpy(&half, p, 2);
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

// A warp's rows. The hardware's order of sums is its own; here they are made in double and rounded once.
static void work_out(const WarpProduct &w) {
    double a[16][16]; // by k
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++) a[lane % 4 * 2 + i % 2 + i / 4 * 8][lane / 4 + i / 2 % 2 * 8] = bf16_at((const char *)w.a[lane] + 2 * i);
    for (uint32_t n = 0; n < (uint32_t)w.columns; n++) {
        float *c[16];
        double sum[16];
        for (int g = 0; g < 16; g++) {
            c[g] = &w.c[g % 8 * 4 + n % 8 / 2][n / 8 * 4 + g / 8 * 2 + n % 2];
            sum[g] = *c[g];
        }
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t at = w.address + n / 8 * w.eight_columns + n % 8 * 128 + 2 * k;
            double b = bf16_at(w.memory + ((at ^ (at >> 7 & 7) << 4) - w.address));
            for (int g = 0; g < 16; g++) sum[g] += a[k][g] * b;
        }
        for (int g = 0; g < 16; g++) *c[g] = (float)sum[g];
    }
}

void wgmma_fence(void *const[32]) { self().warp->fenced = true; }

void wgmma(void *const lanes[32]) {
    Warp &w = *self().warp;
    const Product &p = *(const Product *)lanes[0];
    Matrix m = matrix_of(p);
    if (!w.fenced) fail("cu_wgmma_bf16 (%s:%d): no cu_wgmma_fence since the last commit", p.file, p.line);
    std::vector<std::pair<uint64_t, int>> &all = self().of->warpgroups[self().thread.x / 128];
    if (w.products == all.size()) all.push_back({p.b, p.columns});
    WarpProduct made = {{}, {}, p.columns, m.address, m.eight_columns, (const char *)shared_pointer(m.address)};
    for (int i = 0; i < 32; i++) {
        const Product &of_lane = *(const Product *)lanes[i];
        if (all[w.products] != std::make_pair(of_lane.b, of_lane.columns))
            fail("cu_wgmma_bf16 (%s:%d) of the matrix %016llx: the four warps do not have the same", p.file, p.line, (unsigned long long)of_lane.b);
        made.c[i] = of_lane.c;
        made.a[i] = of_lane.a;
    }
    w.products++;
    w.queue.push_back(made);
    w.open++;
}

void wgmma_commit(void *const[32]) {
    Warp &w = *self().warp;
    w.fenced = false;
    w.groups.push_back(w.open);
    w.open = 0;
}

static void run_oldest(Warp &w) {
    WarpProduct p = w.queue.front();
    w.queue.pop_front();
    while (!w.groups.empty() && w.groups.front() == 0) w.groups.pop_front(); // done before they were committed
    unsigned &of_group = w.groups.empty() ? w.open : w.groups.front();
    of_group--;
    work_out(p);
}

// Any lane's wait does the work; its fellows find nothing left to do. (They cannot be past this group: that takes all of them.)
void wgmma_wait(unsigned groups_left) {
    Warp &w = *self().warp;
    while (w.groups.size() > groups_left) {
        if (w.groups.front() == 0) w.groups.pop_front();
        else run_oldest(w);
    }
    maybe_pause();
}

void check_end(const Thread &t) {
    if (!t.warp->queue.empty()) fail("ended, and did not wait for its products");
}

bool something_happens(Block &b, bool must) {
    unsigned slow = b.slowness, done = 0;
    if (!must && !one_in(slow)) return false;
    for (unsigned i = 1 + random32() % 8; i > 0 && !b.flights.empty(); i--, done++) land_one(b);
    if (must && done) return true;
    Warp &w = b.warps[random32() % b.warps.size()];
    if (!w.queue.empty()) run_oldest(w);
    return done;
}

} // namespace shim
