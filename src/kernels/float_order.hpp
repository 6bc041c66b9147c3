// Scores as whole numbers in the same order: these are sorted and selected faster, with the place as the lower half.
#pragma once

#include <bit>
#include <cstdint>

namespace blockxmc {

// Rises with the number, which must not be NaN; -0 and 0 are equal.
inline uint32_t rising_bits(float number) {
    const uint32_t bits = std::bit_cast<uint32_t>(number + 0.0f); // -0 becomes 0
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

} // namespace blockxmc
