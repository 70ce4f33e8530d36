// Questions to a netstack service named `lab`, by C++.
#include "check.h"

#include <bypath.hpp>
#include <string>

int main() {
    const auto counters = bypath::ask("lab", "stats");
    CHECK(counters && counters->size() > 1000 && counters->front() == '[' && counters->back() == ']');
    const auto none = bypath::ask("other", "stats");
    CHECK(!none && none.status() == BYPATH_E_REFUSED);
    std::puts("all as it should be");
}
