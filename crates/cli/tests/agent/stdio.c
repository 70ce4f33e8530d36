/* Streams over descriptors. */
#include "agent.h"
#include <unistd.h>

static FILE *streams[8];

static FILE *stream(struct args *a) { return streams[num(a, 1) & 7]; }

/* fdopen FD MODE: answers the number of the stream */
static void do_fdopen(struct args *a, struct out *o)
{
    for (int i = 0; i < 8; i++)
        if (!streams[i]) {
            streams[i] = fdopen((int)num(a, 1), arg(a, 2));
            answer(o, streams[i] ? i : -1, streams[i] ? UNTOUCHED : errno);
            return;
        }
    say(o, "! too many streams");
}
static void do_fputs(struct args *a, struct out *o)
{
    int n = fprintf(stream(a), "%s\n", arg(a, 2));
    say(o, "%d %d", n, fflush(stream(a)));
}
static void do_fgets(struct args *a, struct out *o)
{
    char text[256] = "";
    char *got = fgets(text, sizeof text, stream(a));
    text[strcspn(text, "\n")] = 0;
    say(o, "%s eof=%d error=%d", got ? text : "nothing", feof(stream(a)) != 0, ferror(stream(a)) != 0);
}
static void do_fclose(struct args *a, struct out *o)
{
    CALL(o, fclose(stream(a)));
    streams[num(a, 1) & 7] = NULL;
}
static void do_dprintf(struct args *a, struct out *o)
{
    int n = dprintf((int)num(a, 1), "%s\n", arg(a, 2));
    say(o, "%d", n);
}

const struct command stdio_commands[] = {
    {"fdopen", do_fdopen}, {"fputs", do_fputs},     {"fgets", do_fgets},
    {"fclose", do_fclose}, {"dprintf", do_dprintf}, {NULL, NULL},
};
