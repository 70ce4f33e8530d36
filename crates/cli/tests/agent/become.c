// Becomes another user and executes a program in an empty environment, as gosu and su-exec do. What is behind the user is left out: the name of a script
// that has this for its interpreter.
// Usage: become USER WORD PROGRAM [ARGUMENT]...
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *nothing[] = {NULL};
    if (argc < 4)
        return 2;
    uid_t user = (uid_t)strtoul(argv[1], NULL, 10);
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)) {
        perror("become");
        return 9;
    }
    execve(argv[3], argv + 3, nothing);
    perror("become: exec");
    return 9;
}
