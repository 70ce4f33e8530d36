// A library with a liburing of its own (-DPLUGIN), and a program that opens it in a scope that nobody else sees.
#ifdef PLUGIN
#include <liburing.h>

int plugin(void) {
    struct io_uring ring;
    int made = io_uring_queue_init(8, &ring, 0);
    if (made == 0)
        io_uring_queue_exit(&ring);
    return made;
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*plugin)(void) = library ? (int (*)(void))dlsym(library, "plugin") : NULL;
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("made %d\n", plugin());
    return 0;
}
#endif
