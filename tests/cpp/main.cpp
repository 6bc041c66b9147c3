// Tests of what Python cannot reach exactly. Run without arguments for all, with names for some, or with -NAME for
// all but that one (an emulator may lack what it needs).
#include <unistd.h>

#include <cstring>

#include "check.hpp"

int main(int argc, char **argv) {
    alarm(300); // a dead-lock ends here
    int run = 0;
    for (const Test &test : all_tests()) {
        bool wanted = argc == 1 || argv[1][0] == '-';
        for (int i = 1; i < argc; ++i) {
            if (argv[i][0] == '-') wanted &= std::strcmp(argv[i] + 1, test.name) != 0;
            else wanted |= std::strcmp(argv[i], test.name) == 0;
        }
        if (!wanted) continue;
        std::fprintf(stderr, "%s\n", test.name); // before it runs, so that a crash is told by its name
        test.run();
        ++run;
    }
    std::printf("%d tests passed\n", run);
    return run == 0;
}
