/* A mistake of the library's own is an error, and ends neither the program nor other sockets. */
#include <bypath.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bypath_status bypath_test_panic(bypath_l2_socket *socket, bypath_error *error);

static bypath_error error;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error.message);       \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static void *panics(void *socket) {
    CHECK(bypath_test_panic(socket, &error) == BYPATH_E_INTERNAL);
    CHECK(strstr(error.message, "asked for, with an MTU of 1500") != NULL && error.system > 0);
    return NULL;
}

int main(void) {
    bypath_l2_socket *broken, *other;
    pthread_t thread;
    size_t mtu;
    CHECK(bypath_l2_open("left", NULL, &broken, &error) == BYPATH_OK);
    CHECK(bypath_l2_open("left", NULL, &other, &error) == BYPATH_OK);
    CHECK(pthread_create(&thread, NULL, panics, broken) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(bypath_l2_mtu(broken, &mtu, &error) == BYPATH_E_INTERNAL && strstr(error.message, "close it") != NULL);
    CHECK(bypath_l2_mtu(other, &mtu, &error) == BYPATH_OK && mtu == 1500);
    CHECK(bypath_test_panic(NULL, NULL) == BYPATH_E_INTERNAL);
    panics(other);
    CHECK(bypath_l2_close(broken, &error) == BYPATH_OK && bypath_l2_close(other, &error) == BYPATH_OK);
    CHECK(bypath_l2_open("left", NULL, &other, &error) == BYPATH_OK);
    CHECK(bypath_l2_close(other, &error) == BYPATH_OK);
    puts("all as it should be");
    return 0;
}
