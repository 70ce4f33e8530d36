// Options that a program sets by a system call of its own, which no interposed function sees. Includes errno.h.
#include <errno.h>
#include <sys/syscall.h>

static inline long set_unseen(int fd, int level, int name, const void *value, long size) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = (long)value;
    register long r8 __asm__("r8") = size;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_setsockopt), "D"((long)fd), "S"((long)level), "d"((long)name), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_setsockopt;
    register long x0 __asm__("x0") = fd;
    register long x1 __asm__("x1") = level;
    register long x2 __asm__("x2") = name;
    register long x3 __asm__("x3") = (long)value;
    register long x4 __asm__("x4") = size;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    long result = x0;
#endif
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
