#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

namespace graphc::images {

/// CLIP's byte pair encoding: lower case, words and single digits, then pairs merged in the order in which they were learned.
/// The ids are those of `graphc_images/tokenizers/clip.py`.
class ClipTokenizer {
  public:
    static constexpr int start = 49406, end = 49407, comma = 267;

    ClipTokenizer();

    /// Ids of a text of any length, without `start` and `end`; their own spellings give them.
    std::vector<int> encode(std::u32string_view text) const;

  private:
    void append_words(std::vector<int> & ids, std::u32string_view text) const;
    void append_word(std::vector<int> & ids, std::u32string_view word) const;

    std::unordered_map<uint32_t, int> id_of_pair_;
};

}  // namespace graphc::images
