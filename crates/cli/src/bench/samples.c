// Where a program is, a thousand times a second: a library to be loaded before all others (LD_PRELOAD). At the end the file
// that BYPATH_BENCH_SAMPLES names has a line for each sample: addresses from the inside out, as they stand in the program's
// file, and names where they are another library's. For programs with one thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 20000, DEPTH = 40, OURS = 2 }; // this handler, and the kernel's return from it

static void *samples[MOST][DEPTH];
static int depths[MOST];
static volatile int taken;
static timer_t timer;
static ElfW(Addr) base, end;

static int program(struct dl_phdr_info *info, size_t len, void *data) {
    (void)len, (void)data;
    base = info->dlpi_addr;
    for (int n = 0; n < info->dlpi_phnum; n++) {
        ElfW(Addr) last = base + info->dlpi_phdr[n].p_vaddr + info->dlpi_phdr[n].p_memsz;
        if (info->dlpi_phdr[n].p_type == PT_LOAD && last > end) end = last;
    }
    return 1; // the first one is the program
}

static void sample(int signal) {
    (void)signal;
    if (taken < MOST) {
        depths[taken] = backtrace(samples[taken], DEPTH);
        taken++;
    }
}

__attribute__((constructor)) static void begin(void) {
    if (!getenv("BYPATH_BENCH_SAMPLES")) return;
    dl_iterate_phdr(program, NULL);
    void *first[4];
    backtrace(first, 4); // loads what it needs, which no handler may
    struct sigaction action = {.sa_handler = sample, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec often = {{0, 997000}, {0, 997000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &often, NULL);
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("BYPATH_BENCH_SAMPLES");
    if (!path) return;
    signal(SIGPROF, SIG_IGN);
    FILE *file = fopen(path, "w");
    if (!file) return;
    for (int n = 0; n < taken; n++) {
        for (int at = OURS; at < depths[n]; at++) {
            // A caller is where the call is, not where it returns to.
            ElfW(Addr) address = (ElfW(Addr))samples[n][at] - (at > OURS);
            Dl_info info;
            if (address >= base && address < end)
                fprintf(file, "0x%lx ", (unsigned long)(address - base));
            else if (dladdr((void *)address, &info) && info.dli_fname)
                fprintf(file, "%s ", info.dli_sname ? info.dli_sname : basename(info.dli_fname));
        }
        fputc('\n', file);
    }
    fclose(file);
}
