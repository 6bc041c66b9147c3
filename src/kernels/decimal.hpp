// Decimal text to float32, correctly rounded. The text must end in a byte that no number contains (here: a newline).
#pragma once

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

namespace blockxmc::xc {

enum class Finding : int {
    none = 0,
    bad_label,
    bad_feature,
    negative_label,
    negative_feature,
    label_range,
    feature_range,
    bad_value,
    not_finite,
    value_range,
};

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
inline bool ends_token(char c) { return is_blank(c) || c == '\n'; }

inline constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                          1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

struct Number {
    float value;
    Finding finding;
};

// The parts of [+-]digits[.digits][e[+-]digits] as they are written in the text.
struct Decimal {
    const char *digits;      // first digit or point
    int64_t whole, fraction; // number of digits before and after the point
    int64_t exponent;        // what follows e, clamped far outside the range of a float
    uint64_t mantissa;       // all digits as one integer; meaningful up to 19 digits
    bool negative;
};

// Whether a number that std::from_chars calls out of range is too large (else it rounds to zero).
inline bool overflows(const Decimal &number) {
    const char *p = number.digits;
    for (int64_t i = 0; i < number.whole; ++i, ++p)
        if (*p != '0') return number.whole - 1 - i + number.exponent > 0;
    if (number.fraction) ++p; // the point
    for (int64_t i = 0; i < number.fraction; ++i, ++p)
        if (*p != '0') return -1 - i + number.exponent > 0;
    return false;
}

inline Number exact_float(const char *start, const char *end, const Decimal &number) {
    float value = 0.0f;
    const auto result = std::from_chars(*start == '+' ? start + 1 : start, end, value);
    if (result.ec == std::errc::result_out_of_range || (result.ec == std::errc{} && std::isinf(value)))
        return overflows(number) ? Number{0.0f, Finding::value_range} : Number{0.0f, Finding::none};
    if (result.ec != std::errc{} || result.ptr != end) return {0.0f, Finding::bad_value};
    return {value, Finding::none};
}

inline bool starts_not_finite(const char *p) {
    const char c = static_cast<char>(*p | 0x20);
    return c == 'n' || c == 'i';
}

// Reads the number at p and moves p behind it; on a finding p is left at the start of the number.
inline Number read_float(const char *&p) {
    const char *const start = p;
    const char *q = p;
    Decimal number{};
    number.negative = *q == '-';
    if (*q == '-' || *q == '+') ++q;
    number.digits = q;
    uint64_t mantissa = 0;
    for (; is_digit(*q); ++q) mantissa = mantissa * 10 + static_cast<uint64_t>(*q - '0');
    number.whole = q - number.digits;
    if (*q == '.') {
        const char *const first = ++q;
        for (; is_digit(*q); ++q) mantissa = mantissa * 10 + static_cast<uint64_t>(*q - '0');
        number.fraction = q - first;
    }
    if (number.whole + number.fraction == 0)
        return {0.0f, starts_not_finite(number.digits) ? Finding::not_finite : Finding::bad_value};
    if (*q == 'e' || *q == 'E') {
        ++q;
        const bool down = *q == '-';
        if (*q == '-' || *q == '+') ++q;
        if (!is_digit(*q)) return {0.0f, Finding::bad_value};
        for (; is_digit(*q); ++q)
            if (number.exponent < 1'000'000'000'000) number.exponent = number.exponent * 10 + (*q - '0');
        if (down) number.exponent = -number.exponent;
    }
    if (!ends_token(*q)) return {0.0f, Finding::bad_value};

    const int64_t power = number.exponent - number.fraction;
    if (number.whole + number.fraction <= 19 && mantissa <= (uint64_t{1} << 53) && power >= -22 && power <= 22) {
        // Both operands are exact, so one IEEE operation gives the nearest double. Rounding that to float is right too
        // unless it lies exactly half-way between two floats (the 29 bits that fall away are 1000...).
        const double m = static_cast<double>(mantissa);
        const double nearest = power < 0 ? m / kPowersOfTen[-power] : m * kPowersOfTen[power];
        const bool halfway = (std::bit_cast<uint64_t>(nearest) & 0x1FFFFFFF) == 0x10000000;
        using Float = std::numeric_limits<float>;
        if (mantissa == 0 || (!halfway && nearest >= Float::min() && nearest <= Float::max())) {
            p = q;
            const float value = static_cast<float>(nearest);
            return {number.negative ? -value : value, Finding::none};
        }
    }
    const Number exact = exact_float(start, q, number);
    if (exact.finding == Finding::none) p = q;
    return exact;
}

// Reads the digits at p and moves p behind them; -1 without a digit, INT64_MAX for what does not fit.
inline int64_t read_index(const char *&p) {
    const char *const start = p;
    uint64_t value = 0;
    for (; is_digit(*p); ++p) value = value * 10 + static_cast<uint64_t>(*p - '0');
    if (p - start <= 18) return p == start ? -1 : static_cast<int64_t>(value);
    value = 0;
    for (const char *q = start; q < p; ++q) {
        value = value * 10 + static_cast<uint64_t>(*q - '0');
        if (value > static_cast<uint64_t>(INT64_MAX) / 16) return INT64_MAX;
    }
    return static_cast<int64_t>(value);
}

} // namespace blockxmc::xc
