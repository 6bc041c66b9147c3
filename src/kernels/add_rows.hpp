// Adding a row of weights, times the value of its feature, to the scores of a chunk's labels.
#pragma once

#include <cstdint>
#include <cstring>

#include "chunk.hpp"
#include "topk.hpp"

BLOCKXMC_SIMD static void add_dense(float *__restrict scores, const float *__restrict weights, int64_t n, float value) {
    for (int64_t j = 0; j < n; ++j) scores[j] += value * weights[j];
}

inline void add_sparse(float *__restrict scores, const float *__restrict weights, const uint16_t *__restrict labels,
                       int64_t n, float value) {
    // Labels of a row are distinct, which the compiler cannot know: four sums at a time may overlap.
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        float *a = scores + labels[j], *b = scores + labels[j + 1], *c = scores + labels[j + 2], *d = scores + labels[j + 3];
        const float sa = *a + value * weights[j], sb = *b + value * weights[j + 1];
        const float sc = *c + value * weights[j + 2], sd = *d + value * weights[j + 3];
        *a = sa, *b = sb, *c = sc, *d = sd;
    }
    for (; j < n; ++j) scores[labels[j]] += value * weights[j];
}

BLOCKXMC_SIMD static void add_dense_half(float *__restrict scores, const uint16_t *__restrict weights, int64_t n, float value) {
    for (int64_t j = 0; j < n; ++j) {
        const uint32_t upper = static_cast<uint32_t>(weights[j]) << 16;
        float weight;
        __builtin_memcpy(&weight, &upper, sizeof weight);
        scores[j] += value * weight;
    }
}

inline void add_sparse_half(float *__restrict scores, const uint32_t *__restrict words, int64_t n, float value) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) { // as in add_sparse
        float *at[4], sums[4];
        for (int64_t i = 0; i < 4; ++i) {
            at[i] = scores + (words[j + i] & 0xFFFFu);
            sums[i] = *at[i] + value * weight_of(words[j + i] & 0xFFFF0000u);
        }
        for (int64_t i = 0; i < 4; ++i) *at[i] = sums[i];
    }
    for (; j < n; ++j) scores[words[j] & 0xFFFFu] += value * weight_of(words[j] & 0xFFFF0000u);
}

BLOCKXMC_SIMD static void add_dense_byte(float *__restrict scores, const int8_t *__restrict weights, int64_t n, float value) {
    for (int64_t j = 0; j < n; ++j) scores[j] += value * static_cast<float>(weights[j]);
}

inline void multiply_four(const int8_t *weights, float value, float *products) {
#if defined(__SSE2__) // the compiler would convert them one by one
    int32_t four;
    std::memcpy(&four, weights, sizeof four);
    __m128i bytes = _mm_cvtsi32_si128(four);
    bytes = _mm_unpacklo_epi8(bytes, bytes);
    bytes = _mm_srai_epi32(_mm_unpacklo_epi16(bytes, bytes), 24);
    _mm_storeu_ps(products, _mm_mul_ps(_mm_cvtepi32_ps(bytes), _mm_set1_ps(value)));
#else
    for (int64_t i = 0; i < 4; ++i) products[i] = value * static_cast<float>(weights[i]);
#endif
}

template <typename Label>
void add_sparse_byte(float *__restrict scores, const Label *__restrict labels, const int8_t *__restrict weights, int64_t n,
                     float value) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) { // as in add_sparse
        float *at[4], products[4], sums[4];
        multiply_four(weights + j, value, products);
        for (int64_t i = 0; i < 4; ++i) {
            at[i] = scores + labels[j + i];
            sums[i] = *at[i] + products[i];
        }
        for (int64_t i = 0; i < 4; ++i) *at[i] = sums[i];
    }
    for (; j < n; ++j) scores[labels[j]] += value * static_cast<float>(weights[j]);
}

// The sums of scaled weights become scores.
BLOCKXMC_SIMD static void apply_scales(float *__restrict scores, const float *__restrict scale, const float *__restrict bias,
                                       int64_t n) {
    for (int64_t j = 0; j < n; ++j) scores[j] = scores[j] * scale[j] + bias[j];
}

inline void add_dense_row(const ChunkView &chunk, const WeightRow &row, float value, float *scores) {
    if (chunk.bits == 8)
        add_dense_byte(scores, reinterpret_cast<const int8_t *>(row.words), chunk.n_labels, value);
    else if (chunk.bits == 16)
        add_dense_half(scores, reinterpret_cast<const uint16_t *>(row.words), chunk.n_labels, value);
    else
        add_dense(scores, row.weights(), chunk.n_labels, value);
}

inline void add_sparse_row(const ChunkView &chunk, const WeightRow &row, float value, float *scores) {
    const RowShape shape = chunk.shape();
    const int64_t n = shape.n_sparse(row.n_words);
    if (chunk.bits == 32)
        add_sparse(scores, row.weights(), row.labels(n), n, value);
    else if (chunk.bits == 16)
        add_sparse_half(scores, row.words, n, value);
    else if (shape.byte_labels())
        add_sparse_byte(scores, row.first_labels<uint8_t>(), row.last_weights<uint8_t>(n), n, value);
    else
        add_sparse_byte(scores, row.first_labels<uint16_t>(), row.last_weights<uint16_t>(n), n, value);
}
