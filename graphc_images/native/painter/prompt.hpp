#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "clip_tokenizer.hpp"

/// A1111's language of prompts: comments, AND, texts that change over the steps, emphasis, chunks; `graphc_images/prompts` in C++.
/// What cannot be throws SettingError.
namespace graphc::images {

/// A part of a prompt, and how much it matters; 1 is plain.
struct Piece {
    std::u32string text;
    double weight;
    bool is_break() const { return text == U"BREAK" && weight == -1; }
};

/// `(x)`, `[x]`, `(x:1.3)`, backslashes before brackets, BREAK; what is not closed runs to the end. There is at least one.
std::vector<Piece> parse_attention(std::u32string_view prompt);

/// One row for a text encoder: ids with start, end and padding, and a weight for each.
struct Chunk {
    std::vector<int> ids;
    std::vector<double> weights;
};

/// The chunks of a text, of 77 ids each; there is at least one. `pad` fills them.
std::vector<Chunk> chunk_prompt(std::u32string_view text, const ClipTokenizer & tokenizer, int pad);

/// A text that is the prompt for the evaluations, counted from 0, up to and with `until`.
struct Stage {
    int until;
    std::u32string text;
};

/// What is between two ANDs: how much it adds to the guidance, and its texts over the evaluations.
struct Part {
    double weight;
    std::vector<Stage> stages;

    const std::u32string & at(int evaluation) const;
};

/// The texts of a prompt over so many evaluations.
std::vector<Stage> stages_of(std::u32string_view prompt, int evaluations);

/// A whole prompt; in a `negative` one AND is a word as any other.
std::vector<Part> read_prompt(std::u32string_view prompt, int evaluations, bool negative);

}  // namespace graphc::images
