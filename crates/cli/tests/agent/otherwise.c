// A process that says of itself what is not so (PR_SET_MM_MAP, which takes no right).
//
//   otherwise environment   its environment is 3 GiB that nobody has written
//   otherwise program FILE  the program that it runs is FILE, which may be a script
//
// It prints a line and waits until standard input ends.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

// What is so: fields of /proc/self/stat, by their numbers in proc_pid_stat(5).
static struct prctl_mm_map what_is_so(void) {
    char text[4096] = {0};
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || !fread(text, 1, sizeof text - 1, file))
        fail("/proc/self/stat");
    fclose(file);
    unsigned long field[60] = {0};
    int n = 3;
    for (char *word = strtok(strrchr(text, ')') + 2, " "); word && n < 60; word = strtok(NULL, " "))
        field[n++] = strtoul(word, NULL, 10);
    return (struct prctl_mm_map){
        .start_code = field[26], .end_code = field[27], .start_stack = field[28],
        .start_data = field[45], .end_data = field[46],
        .start_brk = field[47], .brk = (unsigned long)sbrk(0),
        .arg_start = field[48], .arg_end = field[49], .env_start = field[50], .env_end = field[51],
        .exe_fd = -1,
    };
}

// Puts copies in the place of what is mapped of the program's own file: as long as one mapping is left the kernel refuses another file.
static void leave_own_file(void) {
    struct { unsigned long begin, end; } parts[64];
    int count = 0;
    char line[4600], own[4096] = {0};
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0)
        fail("readlink");
    FILE *file = fopen("/proc/self/maps", "r");
    if (!file)
        fail("/proc/self/maps");
    while (count < 64 && fgets(line, sizeof line, file))
        if (strstr(line, own) && sscanf(line, "%lx-%lx", &parts[count].begin, &parts[count].end) == 2)
            count++;
    fclose(file);
    for (int n = 0; n < count; n++) {
        size_t len = parts[n].end - parts[n].begin;
        void *copy = mmap(NULL, len, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED)
            fail("mmap");
        memcpy(copy, (void *)parts[n].begin, len);
        if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)parts[n].begin) == MAP_FAILED)
            fail("mremap");
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int is_program = argc == 3 && !strcmp(argv[1], "program");
    struct prctl_mm_map map = what_is_so();
    if (is_program) {
        map.exe_fd = open(argv[2], O_RDONLY | O_CLOEXEC);
        if ((int)map.exe_fd < 0)
            fail(argv[2]);
        // To name another file takes a right, which everybody has in a user namespace of his own.
        if (unshare(CLONE_NEWUSER))
            fail("unshare");
        leave_own_file();
    } else {
        size_t len = 3ul << 30;
        void *environment = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (environment == MAP_FAILED)
            fail("mmap");
        map.env_start = (unsigned long)environment;
        map.env_end = map.env_start + len;
    }
    if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0))
        fail("prctl");
    puts("ready");
    char octet;
    while (read(0, &octet, 1) > 0)
        ;
}
