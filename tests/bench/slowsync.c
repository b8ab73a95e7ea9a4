/* Preloaded into a process, makes each of its syncs take DELAY_MS longer: a usual disk's part. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static void wait_ms(void) {
    struct timespec delay = {DELAY_MS / 1000, (DELAY_MS % 1000) * 1000000L};
    nanosleep(&delay, 0);
}

int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_ms();
    return next(file);
}

int fdatasync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_ms();
    return next(file);
}
