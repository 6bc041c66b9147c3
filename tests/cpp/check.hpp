// The smallest test framework that serves: tests register themselves, CHECK says where it failed.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

struct Test {
    const char *name;
    void (*run)();
};

inline std::vector<Test> &all_tests() {
    static std::vector<Test> tests;
    return tests;
}

struct Register {
    Register(const char *name, void (*run)()) { all_tests().push_back({name, run}); }
};

#define TEST(name)                                  \
    static void name();                             \
    static const Register register_##name(#name, name); \
    static void name()

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                  \
        }                                                                                  \
    } while (false)

// Whether `call` throws an exception of this type.
template <typename Error, typename Call>
bool throws(Call &&call) {
    try {
        call();
    } catch (const Error &) {
        return true;
    }
    return false;
}
