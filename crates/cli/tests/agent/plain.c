// A static program, which no library comes into: executes another one, or starts it as its child and ends as it does.
// Usage: plain exec|child PROGRAM [ARGUMENT]...
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int status = 0;
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "child") == 0) {
        pid_t child = fork();
        if (child != 0) {
            if (child == -1 || waitpid(child, &status, 0) != child)
                return 9;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
        }
    }
    execv(argv[2], argv + 2);
    perror("plain: exec");
    _exit(9);
}
