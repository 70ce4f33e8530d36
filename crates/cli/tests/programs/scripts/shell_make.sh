# A small project in C: built in parallel, run, tested, broken and mended.
# The tests may have been started by make themselves.
unset MAKELEVEL MAKEFLAGS MFLAGS MAKEOVERRIDES
set -u
mkdir project && cd project || exit 1
cat >numbers.c <<'END'
int next(int n) { return n % 2 ? 3 * n + 1 : n / 2; }
END
cat >main.c <<'END'
#include <stdio.h>
#include <stdlib.h>
int next(int);
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 27, steps = 0;
    for (; n > 1; n = next(n)) steps++;
    printf("%d steps\n", steps);
    return steps > 200;
}
END
cat >Makefile <<'END'
CFLAGS = -O1 -Wall
program: main.o numbers.o
	@$(CC) -o $@ main.o numbers.o
%.o: %.c
	@$(CC) $(CFLAGS) -c -o $@ $<
check: program
	@./program | tee steps && grep -q '^111 steps$$' steps
	@grep -c bypath_preload /proc/self/maps >"$(LOADED)" || true
long: program
	./program 837799
many: 1.n 2.n 3.n 4.n 5.n 6.n 7.n 8.n
%.n:
	@./program $* >$@
END
make -j2 check
echo "make: $?"
make -j4 many && cat ./*.n
make long
echo "make: $?"
echo 'int next(int n) { return m; }' >numbers.c
make program
echo "make: $?"
make -q program
echo "make: $?"
./program 7 <numbers.c | (read -r one two; echo "$two $one")
sh -c 'kill -TERM $$'
echo "killed: $?"
for n in 1 2 3; do ./program "$n" & done >sorted
wait
sort sorted
[ "$(printf 'abc' | tr a-c A-C)" = ABC ] && exit 5
