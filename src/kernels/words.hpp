// Texts to the words, runs of words or groups of letters in them, and a table that numbers these strings.
// The features are those of scikit-learn's CountVectorizer. Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace blockxmc::text {

// Strings by number, in the order in which they were first inserted.
class WordTable {
  public:
    static uint32_t hash(std::string_view word) {
        uint64_t h = word.size() * 0x9E3779B97F4A7C15ull;
        const char *p = word.data();
        size_t left = word.size();
        for (; left >= 8; p += 8, left -= 8) h = mixed(h, p, 8);
        if (left) h = mixed(h, p, left);
        return static_cast<uint32_t>(h >> 32 ^ h);
    }

    int32_t size() const { return static_cast<int32_t>(hashes_.size()); }
    std::string_view word(int32_t id) const {
        return {bytes_.data() + starts_[id], static_cast<size_t>(starts_[id + 1] - starts_[id])};
    }
    uint32_t hash_of(int32_t id) const { return hashes_[id]; }

    // The number of a string, or -1.
    int32_t find(std::string_view word) const {
        if (slots_.empty()) return -1;
        const uint32_t h = hash(word);
        return slots_[slot_of(word, h)].id;
    }

    // The number of a string, which is new if it was not there.
    int32_t insert(std::string_view word) {
        if (hashes_.size() * 2 >= slots_.size()) grow();
        const uint32_t h = hash(word);
        Slot &slot = slots_[slot_of(word, h)];
        if (slot.id < 0) {
            if (hashes_.size() >= INT32_MAX) throw std::length_error("more than 2^31 - 1 different words");
            bytes_.append(word);
            starts_.push_back(static_cast<int64_t>(bytes_.size()));
            slot = {h, size()};
            hashes_.push_back(h);
        }
        return slot.id;
    }

  private:
    struct Slot {
        uint32_t hash = 0;
        int32_t id = -1;
    };

    static uint64_t mixed(uint64_t h, const char *p, size_t n) {
        uint64_t part = 0;
        std::memcpy(&part, p, n);
        h = (h ^ part) * 0xD6E8FEB86659FD93ull;
        return h ^ h >> 32;
    }

    // Where a string stands, or the empty place where it would.
    size_t slot_of(std::string_view word, uint32_t h) const {
        const size_t mask = slots_.size() - 1;
        for (size_t at = h & mask;; at = (at + 1) & mask) {
            const Slot &slot = slots_[at];
            if (slot.id < 0 || (slot.hash == h && this->word(slot.id) == word)) return at;
        }
    }

    void grow() {
        std::vector<Slot> larger(slots_.empty() ? 64 : 2 * slots_.size());
        const size_t mask = larger.size() - 1;
        for (int32_t id = 0; id < size(); ++id) {
            size_t at = hashes_[id] & mask;
            while (larger[at].id >= 0) at = (at + 1) & mask;
            larger[at] = {hashes_[id], id};
        }
        slots_ = std::move(larger);
    }

    std::string bytes_;
    std::vector<int64_t> starts_{0};
    std::vector<uint32_t> hashes_;
    std::vector<Slot> slots_; // a power of two, at most half full
};

enum class Unit { word, letters, letters_in_words };

// What is a feature, and what a code point is: bit 0 belongs to words, bit 1 is white space; beyond the table: neither.
struct Features {
    Unit unit;
    int shortest, longest;
    bool lowercase; // of ASCII letters: others arrive in lower case
    std::span<const uint8_t> classes;
    const WordTable &left_out;
};

// Cuts one text at a time; keeps its scratch.
class Splitter {
  public:
    // Calls use(string) for each feature of a text, as often as it occurs.
    template <typename Use>
    void each(std::string_view text, const Features &features, Use &&use) {
        joined_.clear();
        starts_.clear();
        if (features.unit == Unit::word) {
            join_words(text, features);
            emit_words(features, use);
        } else if (features.unit == Unit::letters) {
            join_letters(text, features);
            emit_letters(features, use);
        } else {
            each_in_words(text, features, use);
        }
    }

  private:
    struct Letter {
        int bytes;
        uint8_t kind;
        bool in_word() const { return kind & 1; }
        bool is_space() const { return kind & 2; }
    };

    static Letter letter(const char *p, std::span<const uint8_t> classes) {
        const auto b = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
        uint32_t c = b(0);
        int bytes = 1;
        if (c >= 0xF0) {
            c = (c & 7) << 18 | (b(1) & 63) << 12 | (b(2) & 63) << 6 | (b(3) & 63);
            bytes = 4;
        } else if (c >= 0xE0) {
            c = (c & 15) << 12 | (b(1) & 63) << 6 | (b(2) & 63);
            bytes = 3;
        } else if (c >= 0x80) {
            c = (c & 31) << 6 | (b(1) & 63);
            bytes = 2;
        }
        return {bytes, c < classes.size() ? classes[c] : uint8_t{0}};
    }

    void append(const char *p, int64_t n, bool lowercase) {
        const size_t at = joined_.size();
        joined_.append(p, static_cast<size_t>(n));
        if (!lowercase) return;
        for (size_t i = at; i < joined_.size(); ++i)
            if (joined_[i] >= 'A' && joined_[i] <= 'Z') joined_[i] = static_cast<char>(joined_[i] + 32);
    }

    std::string_view joined(size_t from, size_t to) const { return {joined_.data() + from, to - from}; }

    // Words of two or more letters, each followed by a space; starts_ has where each begins, and the end.
    void join_words(std::string_view text, const Features &features) {
        const char *p = text.data(), *const end = p + text.size(), *word = p;
        int letters = 0;
        const auto finish = [&](const char *stop) {
            if (letters >= 2) {
                const size_t at = joined_.size();
                append(word, stop - word, features.lowercase);
                if (features.left_out.size() && features.left_out.find(joined(at, joined_.size())) >= 0) {
                    joined_.resize(at);
                } else {
                    starts_.push_back(at);
                    joined_.push_back(' ');
                }
            }
            letters = 0;
        };
        while (p < end) {
            const Letter next = letter(p, features.classes);
            if (next.in_word()) {
                if (letters++ == 0) word = p;
            } else {
                finish(p);
            }
            p += next.bytes;
        }
        finish(end);
        starts_.push_back(joined_.size());
    }

    template <typename Use>
    void emit_words(const Features &features, Use &&use) {
        const auto n_words = static_cast<int64_t>(starts_.size()) - 1;
        for (int64_t length = features.shortest; length <= features.longest; ++length)
            for (int64_t i = 0; i + length <= n_words; ++i) use(joined(starts_[i], starts_[i + length] - 1));
    }

    // The text with several white spaces in a row as one space; starts_ has where each letter begins, and the end.
    void join_letters(std::string_view text, const Features &features) {
        const char *p = text.data(), *const end = p + text.size();
        while (p < end) {
            const char *const first = p;
            Letter next = letter(p, features.classes);
            p += next.bytes;
            starts_.push_back(joined_.size());
            if (next.is_space() && p < end && letter(p, features.classes).is_space()) {
                while (p < end && (next = letter(p, features.classes)).is_space()) p += next.bytes;
                joined_.push_back(' ');
            } else {
                append(first, p - first, features.lowercase);
            }
        }
        starts_.push_back(joined_.size());
    }

    template <typename Use>
    void emit_letters(const Features &features, Use &&use) {
        const auto n_letters = static_cast<int64_t>(starts_.size()) - 1;
        for (int64_t length = features.shortest; length <= features.longest; ++length)
            for (int64_t i = 0; i + length <= n_letters; ++i) use(joined(starts_[i], starts_[i + length]));
    }

    // Groups of letters of each word with a space before and behind it; of a word that is shorter, all of it once.
    template <typename Use>
    void each_in_words(std::string_view text, const Features &features, Use &&use) {
        const char *p = text.data(), *const end = p + text.size();
        while (p < end) {
            Letter next = letter(p, features.classes);
            if (next.is_space()) {
                p += next.bytes;
                continue;
            }
            joined_.assign(1, ' ');
            starts_.assign(1, 0);
            while (p < end && !(next = letter(p, features.classes)).is_space()) {
                starts_.push_back(joined_.size());
                append(p, next.bytes, features.lowercase);
                p += next.bytes;
            }
            starts_.push_back(joined_.size());
            joined_.push_back(' ');
            starts_.push_back(joined_.size());
            const auto n_letters = static_cast<int64_t>(starts_.size()) - 1;
            for (int64_t length = features.shortest; length <= features.longest; ++length) {
                if (length >= n_letters) {
                    use(joined(0, joined_.size()));
                    break;
                }
                for (int64_t i = 0; i + length <= n_letters; ++i) use(joined(starts_[i], starts_[i + length]));
            }
        }
    }

    std::string joined_;
    std::vector<size_t> starts_;
};

} // namespace blockxmc::text
