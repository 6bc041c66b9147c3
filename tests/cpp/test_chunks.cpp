// Packing, finding a feature in a chunk, and the checks of packed models.
#include <cmath>
#include <map>

#include "check.hpp"
#include "pack.hpp"
#include "packed_model.hpp"
#include "random.hpp"
#include "score_chunk.hpp"

using namespace blockxmc;

namespace {

// Random label-major weights with a given share of features in use.
struct Matrix {
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<float> data;
    int64_t n_features;

    Matrix(uint64_t seed, int64_t n_labels, int64_t n_features, int64_t one_in) : n_features(n_features) {
        RandomStream random(seed);
        for (int64_t j = 0; j < n_labels; ++j) {
            for (int32_t f = 0; f < n_features; ++f)
                if (random.below(one_in) == 0 || f == 3) {
                    indices.push_back(f);
                    data.push_back(static_cast<float>(random.uniform() * 2 - 1));
                }
            indptr.push_back(static_cast<int64_t>(indices.size()));
        }
    }
    int64_t n_labels() const { return static_cast<int64_t>(indptr.size()) - 1; }
    CsrView view() const { return {indptr.data(), indices.data(), data.data(), n_labels(), n_features}; }
};

// A packed model of one block with one chunk.
struct OneChunk {
    PackedChunks packed;
    std::vector<int64_t> block_ptr{0, 1}, offsets;
    std::vector<int32_t> labels;
    std::vector<float> bias;
    int bits;
    int64_t n_features;

    OneChunk(const Matrix &matrix, int bits) : bias(matrix.n_labels(), 0.5f), bits(bits), n_features(matrix.n_features) {
        for (int32_t j = 0; j < matrix.n_labels(); ++j) labels.push_back(j);
        const int64_t end = matrix.n_labels();
        packed = pack_chunks(matrix.view(), labels, {&end, 1}, bits, 1);
        const auto &sizes = packed.sizes[0];
        offsets = {0, 0, 0, 0, 0, end, sizes[0], sizes[1], sizes[2], sizes[3]};
    }
    PackedModel::Arrays arrays() const {
        const PackedChunk &flat = packed.flat;
        return {block_ptr, offsets, labels, bias, {}, bits == 8 ? std::span<const float>(flat.scale) : std::span<const float>(),
                flat.keys, flat.buckets, flat.rows, flat.arena, bits};
    }
    PackedModel model() const { return {arrays(), static_cast<int64_t>(labels.size()), n_features}; }
};

float tolerance(int bits) { return bits == 32 ? 0.0f : bits == 16 ? 1.0f / 256 : 1.0f / 127; }

void check_weights(const Matrix &matrix, int bits) {
    const OneChunk one(matrix, bits);
    const PackedModel model = one.model();
    const ChunkView chunk = model.chunk(0);
    std::map<std::pair<int32_t, int64_t>, float> weights;
    for (int64_t j = 0; j < matrix.n_labels(); ++j)
        for (int64_t k = matrix.indptr[j]; k < matrix.indptr[j + 1]; ++k) weights[{matrix.indices[k], j}] = matrix.data[k];
    Scratch scratch;
    for (int32_t f = 0; f < matrix.n_features; ++f) { // one feature of value 1: the scores are its weights
        const float value = 1;
        score_chunk(chunk, {&f, &value, 1}, scratch);
        for (int64_t j = 0; j < matrix.n_labels(); ++j) {
            const auto found = weights.find({f, j});
            const float weight = found == weights.end() ? 0.0f : found->second;
            CHECK(std::fabs(scratch.scores[j] - (0.5f + weight)) <= tolerance(bits) + 1e-7f);
        }
    }
}

} // namespace

TEST(packed_weights_come_back_for_all_bits_and_shapes) {
    for (int bits : {32, 16, 8}) {
        check_weights(Matrix(1, 40, 50, 2), bits);   // direct, dense rows
        check_weights(Matrix(2, 40, 50, 9), bits);   // direct, sparse rows
        check_weights(Matrix(3, 9, 900, 60), bits);  // hashed
        check_weights(Matrix(4, 300, 60, 8), bits);  // label numbers of 16 bits beside weights of 8
        check_weights(Matrix(5, 1, 10, 1), bits);
    }
}

TEST(rounding_is_to_nearest_even) {
    CHECK(rounded(0.5f) == 0 && rounded(1.5f) == 2 && rounded(-0.5f) == 0 && rounded(-1.5f) == -2 && rounded(126.6f) == 127);
    CHECK(bfloat16_word(1.0f) == 0x3F800000u);
    CHECK(bfloat16_word(std::bit_cast<float>(0x3F808000u)) == 0x3F800000u); // a tie goes to the even one
    CHECK(bfloat16_word(std::bit_cast<float>(0x3F818000u)) == 0x3F820000u);
    CHECK(bfloat16_word(std::bit_cast<float>(0x3F808001u)) == 0x3F810000u);
}

TEST(lookup_finds_each_feature_once_and_no_other) {
    const Matrix matrix(6, 9, 5000, 300);
    const OneChunk one(matrix, 32);
    const PackedModel model = one.model();
    const ChunkView chunk = model.chunk(0);
    CHECK(!chunk.direct());
    std::vector<bool> used(5000, false);
    for (int32_t f : matrix.indices) used[f] = true;
    for (int32_t f = 0; f < 5000; ++f) {
        bool found;
        const uint32_t row = find_hashed(chunk, f, found);
        CHECK(found == used[f]);
        CHECK(!found || chunk.keys[row] == f);
    }
    for (int32_t f : {-1, INT32_MIN, INT32_MAX, 5000}) {
        bool found;
        CHECK(find_hashed(chunk, f, found) == 0 && !found);
    }
}

TEST(lookup_in_a_bucket_longer_than_a_window) {
    // All keys in one bucket: the search must go on from window to window.
    std::vector<int32_t> keys;
    for (int32_t f = 0; f < 30; ++f) keys.push_back(7 * f);
    keys.insert(keys.end(), key_window, no_feature);
    const uint32_t buckets[] = {0, 30};
    ChunkView chunk{};
    chunk.keys = keys.data();
    chunk.buckets = buckets;
    chunk.n_keys = static_cast<int64_t>(keys.size());
    chunk.n_buckets = 1;
    chunk.n_rows = 30;
    for (int32_t f = -3; f < 220; ++f) {
        bool found;
        const uint32_t row = find_hashed(chunk, f, found);
        CHECK(found == (f >= 0 && f % 7 == 0 && f < 210));
        CHECK(!found || row == static_cast<uint32_t>(f / 7));
    }
}

TEST(offsets_that_wrap_are_refused) {
    const OneChunk one(Matrix(7, 4, 20, 3), 32);
    for (int column = 0; column < PackedModel::n_columns; ++column) {
        // Differences of these wrap to small positive numbers; comparisons see that they fall.
        const int64_t big = int64_t{1} << 62;
        for (const std::vector<int64_t> &middle :
             {std::vector<int64_t>{int64_t{1} << 40, big, INT64_MIN, -big, 0}, std::vector<int64_t>{-1}, std::vector<int64_t>{big}}) {
            OneChunk hostile = one;
            const std::vector<int64_t> last(one.offsets.end() - 5, one.offsets.end());
            hostile.offsets.resize(5);
            for (int64_t value : middle) {
                hostile.offsets.insert(hostile.offsets.end(), 5, 0);
                hostile.offsets[hostile.offsets.size() - 5 + column] = value;
            }
            hostile.offsets.insert(hostile.offsets.end(), last.begin(), last.end());
            hostile.block_ptr = {0, static_cast<int64_t>(middle.size()) + 1};
            CHECK(throws<DamagedModel>([&] { hostile.model(); }));
        }
    }
}

TEST(block_pointers_and_counts_are_checked) {
    const OneChunk one(Matrix(8, 4, 20, 3), 32);
    for (const std::vector<int64_t> &wrong : {std::vector<int64_t>{}, {0}, {1}, {0, 2}, {0, -1, 1}, {0, INT64_MIN, 1}, {0, 5, 1}}) {
        OneChunk hostile = one;
        hostile.block_ptr = wrong;
        CHECK(throws<DamagedModel>([&] { hostile.model(); }));
    }
    CHECK(throws<DamagedModel>([&] { PackedModel(one.arrays(), -1, 20); }));
    CHECK(throws<DamagedModel>([&] { PackedModel(one.arrays(), int64_t{1} << 40, 20); }));
    CHECK(throws<DamagedModel>([&] { PackedModel(one.arrays(), 4, -1); }));
    CHECK(throws<DamagedModel>([&] { PackedModel(one.arrays(), 3, 20).chunk(0); })); // a label beyond n_labels
}

TEST(damaged_words_of_a_chunk_are_refused_or_harmless) {
    RandomStream random(9);
    for (int bits : {32, 16, 8})
        for (const Matrix &matrix : {Matrix(1, 12, 40, 3), Matrix(3, 9, 900, 60)}) {
            const OneChunk one(matrix, bits);
            for (int round = 0; round < 300; ++round) {
                OneChunk hostile = one;
                PackedChunk &flat = hostile.packed.flat;
                std::vector<uint32_t> *parts[] = {&flat.rows, &flat.buckets, &flat.arena};
                std::vector<uint32_t> &part = *parts[random.below(3)];
                if (part.empty()) continue;
                part[random.below(static_cast<int64_t>(part.size()))] = static_cast<uint32_t>(random.next() >> random.below(64));
                if (random.below(4) == 0) hostile.bias[0] = NAN;
                try { // the sanitizers watch what is read
                    const PackedModel model = hostile.model();
                    Scratch scratch;
                    std::vector<Scored> best(matrix.n_labels());
                    float enough = -INFINITY;
                    for (int32_t f = 0; f < matrix.n_features; ++f) {
                        const float value = 1;
                        best_of_chunk(model.chunk(0), {&f, &value, 1}, matrix.n_labels(), {}, scratch, best.data(), enough);
                    }
                } catch (const DamagedModel &) {
                }
            }
        }
}
