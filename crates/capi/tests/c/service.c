/* Questions to a netstack service, from C: one named `lab` runs, at the path that is given. */
#include "check.h"

int main(int argc, char **argv) {
    static char answer[1 << 16];
    static char small[8];
    size_t length = 0, again = 0;
    CHECK(argc == 2);
    WORKS(bypath_service_ask("lab", "addresses", answer, sizeof answer, &length, &error));
    CHECK(length == strlen(answer) && answer[0] == '[' && answer[length - 1] == ']');
    CHECK(strstr(answer, "\"10.0.0.2/24\"") != NULL);
    WORKS(bypath_service_ask(argv[1], "service", answer, sizeof answer, &length, &error));
    CHECK(strstr(answer, "\"name\":\"lab\"") != NULL);
    /* What does not fit is cut, and told. */
    WORKS(bypath_service_ask("lab", "stats", NULL, 0, &length, &error));
    CHECK(length > 1000);
    WORKS(bypath_service_ask("lab", "links", small, sizeof small, &again, &error));
    CHECK(again >= sizeof small && strlen(small) == sizeof small - 1);
    /* Changes. */
    const char *add = "{\"what\":\"change\",\"change\":\"add-address\",\"address\":\"10.0.0.3/24\"}";
    WORKS(bypath_service_ask("lab", add, answer, sizeof answer, &length, &error));
    CHECK(strcmp(answer, "[{\"done\":\"10.0.0.3/24 added\"}]") == 0);
    FAILS(BYPATH_E_IN_USE, bypath_service_ask("lab", add, answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_UNKNOWN,
          bypath_service_ask("lab", "{\"what\":\"change\",\"change\":\"remove-address\",\"address\":\"10.0.0.3\",\"interface\":\"x\"}",
                             answer, sizeof answer, &length, &error));
    CHECK(strstr(error.message, "x: no such interface of the service; there are: lo, cable") != NULL);
    WORKS(bypath_service_ask("lab",
                             "{\"what\":\"ping\",\"destination\":\"10.0.0.2\",\"count\":2,\"interval_ns\":1000,"
                             "\"timeout_ns\":1000000000,\"octets\":56,\"hop_limit\":64}",
                             answer, sizeof answer, &length, &error));
    CHECK(strstr(answer, "\"received\":2") != NULL);
    /* What cannot be. */
    FAILS(BYPATH_E_REFUSED, bypath_service_ask("other", "links", answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_REFUSED, bypath_service_ask(NULL, "links", answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_REFUSED, bypath_service_ask("/nowhere/x", "links", answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_RESET, bypath_service_ask("lab", "weather", answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_INVALID, bypath_service_ask("lab", "li\"nks", answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_INVALID, bypath_service_ask("lab", NULL, answer, sizeof answer, &length, &error));
    FAILS(BYPATH_E_INVALID, bypath_service_ask("lab", "links", answer, sizeof answer, NULL, &error));
    FAILS(BYPATH_E_INVALID, bypath_service_ask("lab", "links", NULL, 5, &length, &error));
    puts("all as it should be");
    return 0;
}
