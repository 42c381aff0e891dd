#include "clip_tokenizer.hpp"

#include "tables.hpp"
#include "text.hpp"

#include <functional>
#include <queue>
#include <tuple>

namespace graphc::images {
namespace {

constexpr std::u32string_view start_text = U"<|startoftext|>", end_text = U"<|endoftext|>";
constexpr std::u32string_view endings[] = {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"};

uint32_t pair_of(int left, int right) { return static_cast<uint32_t>(left) << 16 | static_cast<uint32_t>(right); }

/// Letters, numbers, white space, or none of them.
unsigned sort_of(char32_t character) {
    return kind_of(character) & (tables::letter | tables::number | tables::blank);
}

/// How long the word is that begins a text, which does not begin with white space.
size_t word_length(std::u32string_view text) {
    for (const std::u32string_view ending : endings) {
        if (text.substr(0, ending.size()) == ending) return ending.size();
    }
    const unsigned sort = sort_of(text[0]);
    if (sort == tables::number) return 1;
    size_t length = 1;
    while (length < text.size() && sort_of(text[length]) == sort) ++length;
    return length;
}

}  // namespace

ClipTokenizer::ClipTokenizer() {
    int id = 512;
    for (const auto & pair : tables::clip_pairs) id_of_pair_[pair_of(pair[0], pair[1])] = id++;
}

std::vector<int> ClipTokenizer::encode(std::u32string_view text) const {
    std::vector<int> ids;
    while (true) {
        const size_t first = text.find(start_text), last = text.find(end_text);
        const size_t place = std::min(first, last);
        append_words(ids, lower(composed(text.substr(0, place))));
        if (place == std::u32string_view::npos) return ids;
        ids.push_back(first < last ? start : end);
        text.remove_prefix(place + (first < last ? start_text : end_text).size());
    }
}

void ClipTokenizer::append_words(std::vector<int> & ids, std::u32string_view text) const {
    while (!text.empty()) {
        const bool nothing = sort_of(text[0]) == tables::blank;
        const size_t length = nothing ? 1 : word_length(text);
        if (!nothing) append_word(ids, text.substr(0, length));
        text.remove_prefix(length);
    }
}

/// Again and again the pair that was learned first is merged, the leftmost of equals.
void ClipTokenizer::append_word(std::vector<int> & ids, std::u32string_view word) const {
    std::vector<int> pieces;
    for (const char byte : encoded(word)) pieces.push_back(tables::clip_bytes[static_cast<unsigned char>(byte)]);
    pieces.back() += 256;
    const int count = static_cast<int>(pieces.size());
    std::vector<int> after(pieces.size()), before(pieces.size());
    for (int place = 0; place < count; ++place) {
        after[place] = place + 1 < count ? place + 1 : -1;
        before[place] = place - 1;
    }
    using Waiting = std::tuple<int, int, uint32_t>;  // what it becomes, where its left one is, the pair
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
    const auto consider = [&](int left) {
        if (left < 0 || after[left] < 0) return;
        const uint32_t pair = pair_of(pieces[left], pieces[after[left]]);
        const auto found = id_of_pair_.find(pair);
        if (found != id_of_pair_.end()) waiting.emplace(found->second, left, pair);
    };
    for (int left = 0; left < count; ++left) consider(left);
    while (!waiting.empty()) {
        const auto [merged, left, pair] = waiting.top();
        waiting.pop();
        const int right = after[left];
        // one of the two may have been merged with another since
        if (pieces[left] < 0 || right < 0 || pair != pair_of(pieces[left], pieces[right])) continue;
        pieces[left] = merged;
        pieces[right] = -1;
        after[left] = after[right];
        if (after[left] >= 0) before[after[left]] = left;
        consider(before[left]);
        consider(left);
    }
    for (const int piece : pieces) {
        if (piece >= 0) ids.push_back(piece);
    }
}

}  // namespace graphc::images
