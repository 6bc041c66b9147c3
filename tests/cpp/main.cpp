// Tests of what Python cannot reach exactly. Run without arguments for all, or with names for some.
#include <unistd.h>

#include <cstring>

#include "check.hpp"

int main(int argc, char **argv) {
    alarm(300); // a dead-lock ends here
    int run = 0;
    for (const Test &test : all_tests()) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; ++i) wanted |= std::strcmp(argv[i], test.name) == 0;
        if (!wanted) continue;
        std::fprintf(stderr, "%s\n", test.name); // before it runs, so that a crash is told by its name
        test.run();
        ++run;
    }
    std::printf("%d tests passed\n", run);
    return run == 0;
}
