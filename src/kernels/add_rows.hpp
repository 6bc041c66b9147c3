// Adding a row of weights, times the value of its feature, to the scores of a chunk's labels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "chunk.hpp"
#include "simd.hpp"

namespace blockxmc {

BLOCKXMC_CLONES static void add_dense(float *__restrict scores, const std::byte *__restrict weights, int64_t n, float value) {
    for (int64_t j = 0; j < n; ++j) scores[j] += value * load<float>(weights, j);
}

// Weights are floats, labels 16-bit numbers.
inline void add_sparse(float *__restrict scores, const std::byte *__restrict weights, const std::byte *__restrict labels,
                       int64_t n, float value) {
    // Labels of a row are distinct, which the compiler cannot know: four sums at a time may overlap.
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        float *at[4], sums[4];
        for (int64_t i = 0; i < 4; ++i) {
            at[i] = scores + load<uint16_t>(labels, j + i);
            sums[i] = *at[i] + value * load<float>(weights, j + i);
        }
        for (int64_t i = 0; i < 4; ++i) *at[i] = sums[i];
    }
    for (; j < n; ++j) scores[load<uint16_t>(labels, j)] += value * load<float>(weights, j);
}

BLOCKXMC_CLONES static void add_dense_bfloat16(float *__restrict scores, const std::byte *__restrict weights, int64_t n,
                                               float value) {
    for (int64_t j = 0; j < n; ++j)
        scores[j] += value * std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(weights, j)) << 16);
}

inline void add_sparse_bfloat16(float *__restrict scores, const uint32_t *__restrict words, int64_t n, float value) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) { // as in add_sparse
        float *at[4], sums[4];
        for (int64_t i = 0; i < 4; ++i) {
            at[i] = scores + (words[j + i] & 0xFFFFu);
            sums[i] = *at[i] + value * std::bit_cast<float>(words[j + i] & 0xFFFF0000u);
        }
        for (int64_t i = 0; i < 4; ++i) *at[i] = sums[i];
    }
    for (; j < n; ++j) scores[words[j] & 0xFFFFu] += value * std::bit_cast<float>(words[j] & 0xFFFF0000u);
}

BLOCKXMC_CLONES static void add_dense_byte(float *__restrict scores, const std::byte *__restrict weights, int64_t n,
                                           float value) {
    for (int64_t j = 0; j < n; ++j) scores[j] += value * static_cast<float>(load<int8_t>(weights, j));
}

inline void multiply_four(const std::byte *weights, float value, float *products) {
#if defined(__SSE2__) // the compiler would convert them one by one
    __m128i bytes = _mm_cvtsi32_si128(load<int32_t>(weights, 0));
    bytes = _mm_unpacklo_epi8(bytes, bytes);
    bytes = _mm_srai_epi32(_mm_unpacklo_epi16(bytes, bytes), 24);
    _mm_storeu_ps(products, _mm_mul_ps(_mm_cvtepi32_ps(bytes), _mm_set1_ps(value)));
#else
    for (int64_t i = 0; i < 4; ++i) products[i] = value * static_cast<float>(load<int8_t>(weights, i));
#endif
}

template <typename Label>
void add_sparse_byte(float *__restrict scores, const std::byte *__restrict row, int64_t n, float value) {
    const std::byte *labels = row, *weights = row + n * static_cast<int64_t>(sizeof(Label));
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) { // as in add_sparse
        float *at[4], products[4], sums[4];
        multiply_four(weights + j, value, products);
        for (int64_t i = 0; i < 4; ++i) {
            at[i] = scores + load<Label>(labels, j + i);
            sums[i] = *at[i] + products[i];
        }
        for (int64_t i = 0; i < 4; ++i) *at[i] = sums[i];
    }
    for (; j < n; ++j) scores[load<Label>(labels, j)] += value * static_cast<float>(load<int8_t>(weights, j));
}

// The sums of scaled weights become scores.
BLOCKXMC_CLONES static void apply_scales(float *__restrict scores, const float *__restrict scale, const float *__restrict bias,
                                       int64_t n) {
    for (int64_t j = 0; j < n; ++j) scores[j] = scores[j] * scale[j] + bias[j];
}

inline void add_dense_row(const ChunkView &chunk, const WeightRow &row, float value, float *scores) {
    if (chunk.bits == 8)
        add_dense_byte(scores, row.bytes(), chunk.n_labels, value);
    else if (chunk.bits == 16)
        add_dense_bfloat16(scores, row.bytes(), chunk.n_labels, value);
    else
        add_dense(scores, row.bytes(), chunk.n_labels, value);
}

inline void add_sparse_row(const ChunkView &chunk, const WeightRow &row, float value, float *scores) {
    const RowShape shape = chunk.shape();
    const int64_t n = shape.n_sparse(row.n_words);
    if (chunk.bits == 32)
        add_sparse(scores, row.bytes(), bytes_of(row.words + n), n, value);
    else if (chunk.bits == 16)
        add_sparse_bfloat16(scores, row.words, n, value);
    else if (shape.byte_labels())
        add_sparse_byte<uint8_t>(scores, row.bytes(), n, value);
    else
        add_sparse_byte<uint16_t>(scores, row.bytes(), n, value);
}

} // namespace blockxmc
