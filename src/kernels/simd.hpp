// Vector instructions: which compilers and systems can choose among versions of a function, said in one place.
#pragma once

#include <cstdint> // with glibc, this also defines __GLIBC__

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define BLOCKXMC_INLINE inline __attribute__((always_inline))

// BLOCKXMC_CLONES compiles a function for several instruction sets; the loader picks the best one that the machine has.
// This needs an ifunc, which glibc has and musl lacks, and which sanitizers cannot run so early. GCC 12 is the first that
// knows the levels x86-64-v3 (AVX2) and x86-64-v4 (AVX-512). Elsewhere there is one portable version.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if __GNUC__ >= 12
#define BLOCKXMC_CLONES [[maybe_unused]] __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BLOCKXMC_CLONES [[maybe_unused]] __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define BLOCKXMC_CLONES [[maybe_unused]]
#endif

// BLOCKXMC_TARGET compiles a function for one instruction set; widest() picks among such functions at run time. This works
// with any C library, for functions whose work is inlined into them.
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define BLOCKXMC_TARGET(isa) __attribute__((target(isa)))
#else
#define BLOCKXMC_TARGET(isa)
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" // wide vectors pass between inlined functions only: no ABI is involved
#endif

namespace blockxmc {

// Of one function compiled three times, the widest that this machine can run.
template <typename F>
F widest([[maybe_unused]] F plain, [[maybe_unused]] F avx2, [[maybe_unused]] F avx512) {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    if (__builtin_cpu_supports("avx512f")) return avx512;
    if (__builtin_cpu_supports("avx2")) return avx2;
#endif
    return plain;
}

} // namespace blockxmc
