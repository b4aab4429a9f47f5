// Shared memory of blocks.
#include "threads.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace shim {

Span static_shared;
static __thread char first; // so that there is a segment; asking for it makes the dynamic loader lay it out

// The thread-local storage of this library, in the thread that calls (dl_iterate_phdr(3)).
static int if_mine(dl_phdr_info *library, size_t, void *) {
    const char *mine = (const char *)&static_shared;
    bool is_mine = false;
    size_t bytes = 0;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = library->dlpi_phdr[i];
        const char *begin = (const char *)library->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && mine >= begin && mine < begin + part.p_memsz) is_mine = true;
        if (part.p_type == PT_TLS) bytes = part.p_memsz;
    }
    if (is_mine) static_shared = {(char *)library->dlpi_tls_data, bytes};
    return is_mine;
}

void find_static_shared() {
    *(volatile char *)&first = 0;
    dl_iterate_phdr(if_mine, NULL);
}

enum { ALIGNMENT = 128, FENCE = 0xA7 };

struct Place_of_slot {
    char *pages; // with a page without access before and behind
    size_t page;
    size_t bytes() const { return ((size_t)MOST_SHARED + page - 1) / page * page; }
    char *end() const { return pages + bytes(); }
};
static Place_of_slot places[SLOTS];

static Place_of_slot &place_of(unsigned slot) {
    Place_of_slot &p = places[slot];
    if (p.pages) return p;
    p.page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = (char *)mmap(NULL, p.bytes() + 2 * p.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + p.page, p.bytes(), PROT_READ | PROT_WRITE) != 0) {
        perror("shim: no memory for shared memory");
        abort();
    }
    p.pages = map + p.page;
    return p;
}

static char *begin_of(const Place_of_slot &p, size_t bytes) { return p.end() - (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }
// So much of what lies before it is looked at.
static size_t before(const Place_of_slot &p, const char *begin) { return begin - p.pages < 4096 ? (size_t)(begin - p.pages) : 4096; }

char *dynamic_place(unsigned slot, size_t bytes) {
    if (bytes == 0) return NULL;
    const Place_of_slot &p = place_of(slot);
    char *begin = begin_of(p, bytes);
    memset(begin - before(p, begin), FENCE, before(p, begin));
    memset(begin, 0xFF, bytes);
    memset(begin + bytes, FENCE, (size_t)(p.end() - begin) - bytes);
    return begin;
}

bool dynamic_intact(unsigned slot, size_t bytes) {
    if (bytes == 0) return true;
    const Place_of_slot &p = place_of(slot);
    char *begin = begin_of(p, bytes);
    for (char *c = begin - before(p, begin); c < p.end(); c++)
        if ((c < begin || c >= begin + bytes) && (unsigned char)*c != FENCE) return false;
    return true;
}

bool beside_dynamic(const void *address) {
    const char *a = (const char *)address;
    for (const Place_of_slot &p : places)
        if (p.pages && ((a >= p.pages - p.page && a < p.pages) || (a >= p.end() && a < p.end() + p.page))) return true;
    return false;
}

} // namespace shim
