/* What the tests in C share. */
#ifndef CHECK_H
#define CHECK_H

#include <bypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bypath_error error;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error.message);       \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)
/* The status is told twice, and there is a text. */
#define FAILS(wanted, call)                                                                  \
    do {                                                                                     \
        memset(&error, 0, sizeof error);                                                     \
        CHECK((call) == (wanted));                                                           \
        CHECK(error.status == (wanted) && error.system > 0 && error.message[0] != 0);        \
    } while (0)
#define WORKS(call) CHECK((call) == BYPATH_OK)

#endif
