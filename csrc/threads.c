#include "threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

typedef struct job {
    cbq_work_fn *work;
    void *context;
    int64_t n, grain;
    int shares;           /* a piece is this part of what is left (a quarter of a thread's), in whole grains */
    atomic_llong next;    /* first item that nobody has taken */
    int wanted;           /* helpers still welcome: under the lock */
    atomic_int active;    /* helpers at work: changed under the lock */
    struct job *later;    /* the next one of the queue */
} job;

/* Looks before a thread sleeps: to wake it takes 20 to 50 microseconds. A look takes 40 to 140 cycles with the pause, so
   these are 10 to 50 microseconds. */
enum { LOOKS = 1000 };

static void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield does nothing on most cores */
#endif
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work_came, helper_left;
    job *jobs;
    atomic_int hurry; /* counts the jobs that came, for helpers that look before they sleep */
    int workers;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work_came = PTHREAD_COND_INITIALIZER, .helper_left = PTHREAD_COND_INITIALIZER};

/* A forked child has the pool's memory but not its threads: it begins anew. The lock is held over the fork, so that
   the child never sees a half-changed queue. */
static void before_fork(void) { pthread_mutex_lock(&pool.lock); }
static void after_fork_parent(void) { pthread_mutex_unlock(&pool.lock); }
static void after_fork_child(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work_came, NULL);
    pthread_cond_init(&pool.helper_left, NULL);
    pool.jobs = NULL;
    pool.workers = 0;
}

/* When the library is loaded, not at the first job: a fork that is under way in another thread would miss handlers that
   come later, and its child inherit a lock that nobody opens. Without them there are no helpers. */
static int fork_is_safe;
__attribute__((constructor)) static void register_fork_handlers(void) {
    fork_is_safe = pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
}

static int64_t piece_end(const job *j, int64_t begin) {
    int64_t left = j->n - begin, size = left / j->shares > j->grain ? left / j->shares / j->grain * j->grain : j->grain;
    return left < size ? j->n : begin + size;
}

static void take_pieces(job *j) {
    long long begin = atomic_load_explicit(&j->next, memory_order_relaxed);
    while (begin < j->n) {
        int64_t end = piece_end(j, begin);
        if (!atomic_compare_exchange_weak_explicit(&j->next, &begin, end, memory_order_relaxed, memory_order_relaxed)) continue;
        j->work(j->context, begin, end);
        begin = atomic_load_explicit(&j->next, memory_order_relaxed);
    }
}

static job *job_that_wants_help(void) {
    for (job *j = pool.jobs; j; j = j->later)
        if (j->wanted > 0) return j;
    return NULL;
}

/* Under the lock, which is open while it looks. */
static void wait_for_work(void) {
    int before = atomic_load(&pool.hurry);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < LOOKS && atomic_load(&pool.hurry) == before; i++) pause_a_little();
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.hurry) == before) pthread_cond_wait(&pool.work_came, &pool.lock);
}

static void *worker(void *unused) {
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        job *j = job_that_wants_help();
        if (!j) {
            wait_for_work();
            continue;
        }
        j->wanted--;
        atomic_fetch_add(&j->active, 1);
        pthread_mutex_unlock(&pool.lock);
        take_pieces(j);
        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub(&j->active, 1) == 1) pthread_cond_broadcast(&pool.helper_left); /* j may be gone after the unlock */
    }
    return NULL;
}

/* Under the lock. Where the system refuses a thread, the pool stays smaller. Helpers take no signals: those are for the
   threads of the program, which may have blocked them to wait for them. */
static void grow_pool(int workers) {
    sigset_t all, before;
    if (pool.workers >= workers || !fork_is_safe) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < workers) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0) break;
        pthread_detach(thread);
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void enqueue(job *j) {
    job **end = &pool.jobs;
    while (*end) end = &(*end)->later;
    *end = j;
}
static void dequeue(job *j) {
    job **at = &pool.jobs;
    while (*at != j) at = &(*at)->later;
    *at = j->later;
}

void cbq_parallel(int64_t n, int64_t grain, int threads, cbq_work_fn *work, void *context) {
    int64_t pieces = n / grain + (n % grain != 0);
    int helpers = (int)(pieces < threads ? pieces : threads) - 1;
    if (helpers <= 0) {
        if (n > 0) work(context, 0, n);
        return;
    }
    job j = {.work = work, .context = context, .n = n, .grain = grain, .shares = 4 * threads, .wanted = helpers};
    atomic_init(&j.next, 0);
    atomic_init(&j.active, 0);

    pthread_mutex_lock(&pool.lock);
    grow_pool(helpers);
    enqueue(&j);
    atomic_fetch_add(&pool.hurry, 1);
    if (helpers == 1) pthread_cond_signal(&pool.work_came);
    else pthread_cond_broadcast(&pool.work_came);
    pthread_mutex_unlock(&pool.lock);

    take_pieces(&j);

    pthread_mutex_lock(&pool.lock);
    dequeue(&j);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < LOOKS && atomic_load(&j.active) > 0; i++) pause_a_little();
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&j.active) > 0) pthread_cond_wait(&pool.helper_left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

int cbq_pool_size(void) {
    pthread_mutex_lock(&pool.lock);
    int workers = pool.workers;
    pthread_mutex_unlock(&pool.lock);
    return workers;
}
