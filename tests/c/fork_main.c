/* Forks at the moment when another thread makes the pool: the child must never wait for a lock that only that thread
   could open. Each round is a process of its own, because a pool is made once. Exit status 0, or 1 at the first child that hangs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"

enum { ROUNDS = 6000, DELAYS = 400, SPINS = 20, SECONDS = 10 };

static atomic_int waiting, go;

static void nothing(void *context, int64_t begin, int64_t end) { (void)context; (void)begin; (void)end; }
static void use_pool(void) { cbq_parallel(100, 1, 3, nothing, NULL); }

static void *first_use(void *unused) {
    atomic_store(&waiting, 1);
    while (!atomic_load(&go)) {}
    use_pool();
    return unused;
}

/* Another delay each round: the moment that matters is shorter than a microsecond. */
static int child_hangs(int round) {
    pthread_t thread;
    int status = 0;
    if (pthread_create(&thread, NULL, first_use, NULL)) return 1;
    while (!atomic_load(&waiting)) {}
    atomic_store(&go, 1);
    for (volatile int spin = 0; spin < round % DELAYS * SPINS; spin++) {}
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        use_pool();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status != 0;
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        int status = 0;
        pid_t fresh = fork();
        if (fresh == 0) _exit(child_hangs(round));
        if (fresh < 0 || waitpid(fresh, &status, 0) < 0) return perror("fork"), 1;
        if (status) return printf("round %d: the child hangs\n", round), 1;
    }
    printf("%d rounds: no child hangs\n", ROUNDS);
    return 0;
}
