// A file into the connection while a handler runs. Included once, by signals.c, after what it uses.
#include <sys/mman.h>
#include <sys/sendfile.h>

enum { FILE_SIZE = 64 << 20 };

// The peer reads LATER, and the handler runs before that: by the timer when all room is taken, or where the tests have
// it raised at a marked point. Either way what was sent until then is the answer, even with SA_RESTART.
static void files(int flags) {
    uint64_t got[2], sum = 0;
    int file = memfd_create("file", 0);
    if (ftruncate(file, FILE_SIZE))
        die("ftruncate");
    unsigned char *bytes = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (long i = 0; i < FILE_SIZE; i++)
        sum += bytes[i] = i * 2654435761u >> 13;
    install(SIGALRM, count, flags);
    install(SIGUSR2, count, flags);
    order('r', LATER_MS, FILE_SIZE);
    if (!getenv("BYPATH_TEST_RAISE"))
        alarm_in(SOON_US, 0);
    off_t at = 0;
    ssize_t r = sendfile(s, file, &at, FILE_SIZE);
    alarm_in(0, 0);
    printf("sendfile: short %d, handler %d, offset %d\n", r > 0 && r < FILE_SIZE, (int)ran, at == r);
    while (at < FILE_SIZE)
        if (sendfile(s, file, &at, FILE_SIZE - at) <= 0)
            die("sendfile");
    answer(got);
    printf("arrived %d\n", got[0] == sum);
}
