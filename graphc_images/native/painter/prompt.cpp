#include "prompt.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "arrays.hpp"
#include "text.hpp"

namespace graphc::images {
namespace {

using View = std::u32string_view;

constexpr size_t deepest = 200, nowhere = View::npos;
constexpr double round_factor = 1.1, square_factor = 1 / 1.1;

void refuse_deep(size_t brackets) {
    if (brackets > deepest) throw SettingError("the prompt has more than 200 brackets inside each other");
}

size_t behind_space(View text, size_t place) {
    while (place < text.size() && is_space(text[place])) ++place;
    return place;
}

size_t behind_digits(View text, size_t place, size_t most = nowhere) {
    size_t end = place;
    while (end < text.size() && end - place < most && digit_of(text[end]) >= 0) ++end;
    return end;
}

bool is(View text, size_t place, char32_t character) { return place < text.size() && text[place] == character; }

bool is_sign(View text, size_t place) { return is(text, place, U'+') || is(text, place, U'-'); }

/// The end of a number of up to nine digits, without an exponent, which begins there; nowhere if there is none.
size_t behind_number(View text, size_t place) {
    place += is_sign(text, place);
    const size_t whole = behind_digits(text, place, 9);
    if (whole > place) return is(text, whole, U'.') ? behind_digits(text, whole + 1) : whole;
    const size_t end = is(text, place, U'.') ? behind_digits(text, place + 1) : place;
    return end > place + 1 ? end : nowhere;
}

/// The place where a word begins, from `place` on, with none of its letters before and behind it; nowhere if there is none.
size_t find_word(View text, View word, size_t place) {
    while ((place = text.find(word, place)) != nowhere) {
        const bool begins = place == 0 || !in_word(text[place - 1]);
        const bool ends = place + word.size() == text.size() || !in_word(text[place + word.size()]);
        if (begins && ends) return place;
        ++place;
    }
    return nowhere;
}

/// A token of A1111's language: `text`, and the number of `: number )`.
struct Token {
    View text;
    std::optional<double> number;
};

Token token_at(View prompt, size_t place) {
    const auto token = [&](size_t length) { return Token{prompt.substr(place, length), {}}; };
    constexpr View brackets = U"()[]\\";
    switch (prompt[place]) {
    case U'\\': return token(place + 1 < prompt.size() && brackets.find(prompt[place + 1]) != nowhere ? 2 : 1);
    case U'(':
    case U')':
    case U'[':
    case U']': return token(1);
    case U':': {
        const size_t begin = behind_space(prompt, place + 1), end = behind_number(prompt, begin);
        const size_t closing = end == nowhere ? nowhere : behind_space(prompt, end);
        if (closing == nowhere || !is(prompt, closing, U')')) return token(1);
        return {prompt.substr(place, closing + 1 - place), number_of(prompt.substr(begin, end - begin))};
    }
    default: return token(std::min(prompt.find_first_of(U"\\()[]:", place), prompt.size()) - place);
    }
}

/// A text cut at each BREAK, with the white space around it.
std::vector<View> between_breaks(View text) {
    std::vector<View> parts;
    size_t begin = 0;
    for (size_t place = 0; (place = find_word(text, U"BREAK", place)) != nowhere;) {
        size_t end = place;
        while (end > begin && is_space(text[end - 1])) --end;
        parts.push_back(text.substr(begin, end - begin));
        begin = place = behind_space(text, place + 5);
    }
    parts.push_back(text.substr(begin));
    return parts;
}

}  // namespace

std::vector<Piece> parse_attention(View prompt) {
    std::vector<Piece> pieces;
    std::vector<size_t> round, square;
    const auto multiply = [&](size_t start, double factor) {
        for (size_t each = start; each < pieces.size(); ++each) pieces[each].weight *= factor;
    };
    const auto close = [&](std::vector<size_t> & opened, double factor) {
        multiply(opened.back(), factor);
        opened.pop_back();
    };
    for (size_t place = 0; place < prompt.size();) {
        const Token token = token_at(prompt, place);
        place += token.text.size();
        if (token.text == U"(" || token.text == U"[") {
            (token.text == U"(" ? round : square).push_back(pieces.size());
            refuse_deep(round.size() + square.size());
        } else if (!round.empty() && token.number) {
            close(round, *token.number);
        } else if (!round.empty() && token.text == U")") {
            close(round, round_factor);
        } else if (!square.empty() && token.text == U"]") {
            close(square, square_factor);
        } else if (token.text[0] == U'\\') {
            pieces.push_back({std::u32string(token.text.substr(1)), 1.0});
        } else {
            bool first = true;
            for (const View part : between_breaks(token.text)) {
                if (!first) pieces.push_back({U"BREAK", -1.0});
                pieces.push_back({std::u32string(part), 1.0});
                first = false;
            }
        }
    }
    for (const size_t start : round) multiply(start, round_factor);
    for (const size_t start : square) multiply(start, square_factor);
    std::vector<Piece> merged;
    for (Piece & piece : pieces) {
        if (!merged.empty() && merged.back().weight == piece.weight) {
            merged.back().text += piece.text;
        } else {
            merged.push_back(std::move(piece));
        }
    }
    if (merged.empty()) merged.push_back({U"", 1.0});
    return merged;
}

std::vector<Chunk> chunk_prompt(View text, const ClipTokenizer & tokenizer, int pad) {
    constexpr size_t capacity = 75, backtrack = 20;
    std::vector<Chunk> rows(1);  // without start and end
    size_t comma = nowhere;      // where the last one stands in the row
    const auto begin_row = [&](Chunk row) {
        rows.push_back(std::move(row));
        comma = nowhere;
    };
    for (const Piece & piece : parse_attention(text)) {
        if (piece.is_break()) {
            begin_row({});
            continue;
        }
        for (const int id : tokenizer.encode(piece.text)) {
            Chunk & row = rows.back();
            if (id == ClipTokenizer::comma) {
                comma = row.ids.size();
            } else if (row.ids.size() == capacity && comma != nowhere && row.ids.size() - comma <= backtrack) {
                const auto cut = static_cast<std::ptrdiff_t>(comma + 1);
                Chunk rest{{row.ids.begin() + cut, row.ids.end()}, {row.weights.begin() + cut, row.weights.end()}};
                row.ids.resize(comma + 1);
                row.weights.resize(comma + 1);
                begin_row(std::move(rest));
            }
            if (rows.back().ids.size() == capacity) begin_row({});
            rows.back().ids.push_back(id);
            rows.back().weights.push_back(piece.weight);
        }
    }
    if (rows.back().ids.empty() && rows.size() > 1) rows.pop_back();
    for (Chunk & row : rows) {  // everything after the first end is padding, also what spells an end
        row.ids.insert(row.ids.begin(), ClipTokenizer::start);
        row.ids.push_back(ClipTokenizer::end);
        const auto end = std::find(row.ids.begin(), row.ids.end(), int{ClipTokenizer::end});
        std::fill(end + 1, row.ids.end(), pad);
        row.ids.resize(capacity + 2, pad);
        row.weights.insert(row.weights.begin(), 1.0);
        row.weights.resize(capacity + 2, 1.0);
    }
    return rows;
}

namespace {

/// A text, or `[before:after:when]` (options, and the step), or `[a|b|c]` (options alone).
struct Node {
    std::u32string text;
    std::vector<std::vector<Node>> options;
    std::optional<double> when;
};
using Nodes = std::vector<Node>;

Node plain(View text) { return {std::u32string(text), {}, {}}; }

void append(Nodes & nodes, Nodes more) {
    nodes.insert(nodes.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

char32_t closing_of(char32_t bracket) { return bracket == U'(' ? U')' : U']'; }

/// The number of a text that is one, with white space around it: a share of the evaluations if it has a point.
std::optional<double> step_of(View text, int evaluations) {
    const View found = stripped(text);
    size_t place = is_sign(found, 0);
    const size_t whole = behind_digits(found, place);
    const bool pointed = is(found, whole, U'.');
    const size_t end = pointed ? behind_digits(found, whole + 1) : whole;
    if (end == place + pointed) return {};  // no digit
    place = end;
    if (is(found, place, U'e') || is(found, place, U'E')) {
        const size_t digits = place + 1 + is_sign(found, place + 1);
        place = behind_digits(found, digits);
        if (place == digits) return {};
    }
    if (place != found.size()) return {};
    const double number = number_of(found) * (pointed ? evaluations : 1);
    return static_cast<double>(static_cast<int>(std::max(std::min(number, double(evaluations)), -1.0)));
}

/// A bracket that is not closed yet: its parts so far, and what stands between them.
struct Open {
    char32_t bracket;
    std::vector<Nodes> parts = std::vector<Nodes>(1);
    std::u32string separators = {};

    /// What the bracket is; nothing if the grammar has no such thing.
    std::optional<Nodes> close(int evaluations) const {
        const Nodes around = {plain(View(&bracket, 1))};
        const char32_t closing = closing_of(bracket);
        Nodes found = around;
        if (separators.empty() || (bracket == U'(' && separators == U":")) {
            append(found, parts[0]);
            if (!separators.empty()) {
                found.push_back(plain(U":"));
                append(found, parts[1]);
            }
            found.push_back(plain(View(&closing, 1)));
            return found;
        }
        if (bracket == U'(') return {};
        if (separators.find_first_not_of(U'|') == nowhere) return Nodes{{{}, parts, {}}};
        const Nodes & last = parts.back();
        if (last.size() != 1 || !last[0].options.empty() || (separators != U":" && separators != U"::")) return {};
        const std::optional<double> when = step_of(last[0].text, evaluations);
        if (!when) return {};
        return Nodes{{{}, {separators == U"::" ? parts[0] : Nodes{}, parts[parts.size() - 2]}, when}};
    }

    /// The bracket and what follows it, when it is none.
    Nodes as_characters() const {
        Nodes nodes = {plain(View(&bracket, 1))};
        append(nodes, parts[0]);
        for (size_t each = 0; each < separators.size(); ++each) {
            nodes.push_back(plain(View(&separators[each], 1)));
            append(nodes, parts[each + 1]);
        }
        return nodes;
    }
};

/// Where the text ends that means nothing, from `place` on; a backslash and what follows it are a part of it.
size_t behind_plain(View prompt, size_t place) {
    constexpr View special = U"\\[]():|";
    while (place < prompt.size()) {
        if (special.find(prompt[place]) == nowhere) {
            ++place;
        } else if (prompt[place] == U'\\' && place + 1 < prompt.size() && prompt[place + 1] != U'\n') {
            place += 2;
        } else {
            break;
        }
    }
    return place;
}

/// The prompt as texts and constructs; nothing if the grammar does not have it.
std::optional<Nodes> parse_stages(View prompt, int evaluations) {
    Nodes base;
    std::vector<Open> opened;
    const auto here = [&]() -> Nodes & { return opened.empty() ? base : opened.back().parts.back(); };
    const auto give_up = [&] {  // every open bracket is a character: what is inside of one that is none cannot be one
        for (const Open & each : opened) append(base, each.as_characters());
        opened.clear();
    };
    for (size_t place = 0; place < prompt.size();) {
        if (const size_t end = behind_plain(prompt, place); end > place) {
            here().push_back(plain(prompt.substr(place, end - place)));
            place = end;
            continue;
        }
        const char32_t character = prompt[place];
        const View itself = prompt.substr(place++, 1);
        if (character == U'(' || character == U'[') {
            opened.push_back({character});
            refuse_deep(opened.size());
        } else if ((character == U':' || character == U'|') && !opened.empty()) {
            opened.back().separators += character;
            opened.back().parts.emplace_back();
        } else if ((character == U')' || character == U']') && !opened.empty()) {
            const bool fits = closing_of(opened.back().bracket) == character;
            std::optional<Nodes> closed = fits ? opened.back().close(evaluations) : std::nullopt;
            if (closed) {
                opened.pop_back();
                append(here(), std::move(*closed));
            } else {
                give_up();
                base.push_back(plain(itself));
            }
        } else if (character == U'|' || character == U'\\') {
            return {};
        } else {
            base.push_back(plain(itself));
        }
    }
    give_up();
    const auto bare = [](const Node & node) { return node.options.empty() && node.text == U"|"; };
    if (std::any_of(base.begin(), base.end(), bare)) return {};
    return base;
}

/// Adds the evaluations at which something changes.
void collect(const Nodes & nodes, int evaluations, std::set<int> & ends) {
    for (const Node & node : nodes) {
        if (node.options.empty()) continue;
        if (node.when) {
            if (*node.when >= 1) ends.insert(static_cast<int>(*node.when));
        } else {
            for (int each = 1; each <= evaluations; ++each) ends.insert(each);
        }
        for (const Nodes & option : node.options) collect(option, evaluations, ends);
    }
}

/// The prompt as it is until `end`.
void write(const Nodes & nodes, int end, std::u32string & text) {
    for (const Node & node : nodes) {
        if (node.options.empty()) {
            text += node.text;
        } else if (node.when) {
            write(node.options[end <= *node.when ? 0 : 1], end, text);
        } else {
            const int count = static_cast<int>(node.options.size());
            write(node.options[static_cast<size_t>(((end - 1) % count + count) % count)], end, text);
        }
    }
}

}  // namespace

std::vector<Stage> stages_of(View prompt, int evaluations) {
    const std::optional<Nodes> nodes = parse_stages(prompt, evaluations);
    if (!nodes) return {{evaluations, std::u32string(prompt)}};
    std::set<int> ends = {evaluations};
    collect(*nodes, evaluations, ends);
    std::vector<Stage> stages;
    for (const int end : ends) {
        stages.push_back({end, {}});
        write(*nodes, end, stages.back().text);
    }
    return stages;
}

const std::u32string & Part::at(int evaluation) const {
    for (const Stage & stage : stages) {
        if (evaluation <= stage.until) return stage.text;
    }
    return stages.back().text;
}

namespace {

/// Without what follows a # on a line; lines that are only a comment go as a whole.
std::u32string without_comments(View prompt) {
    const auto pass = [](View text, bool whole_lines) {
        std::u32string kept;
        for (size_t place = 0; place < text.size();) {
            const bool lined = whole_lines && text[place] == U'\n' && is(text, place + 1, U'#');
            const bool begins = text[place] == U'#' && (!whole_lines || place == 0);
            if (!lined && !begins) {
                kept += text[place++];
                continue;
            }
            const size_t end = text.find(U'\n', place + lined);
            kept += U'\n';
            place = end == nowhere ? text.size() : end + 1;
        }
        return kept;
    };
    return pass(pass(prompt, true), false);
}

/// A text, and the number behind its last colon, or 1.
std::pair<View, double> weighted(View text) {
    for (size_t place = 0; place <= text.size(); ++place) {
        const size_t colon = behind_space(text, place);
        if (colon == text.size()) return {text.substr(0, place), 1.0};
        if (text[colon] != U':') continue;
        const size_t begin = behind_space(text, colon + 1), signless = begin + is_sign(text, begin);
        const size_t whole = behind_digits(text, signless, 9);
        const size_t pointed = is(text, whole, U'.') ? whole + 1 : whole, fraction = behind_digits(text, pointed);
        const bool number = pointed > whole ? (whole > signless || fraction > pointed) : whole > signless;
        const size_t end = pointed > whole ? fraction : whole;
        if (number && behind_space(text, end) == text.size()) {
            return {text.substr(0, place), number_of(text.substr(begin, end - begin))};
        }
    }
    return {text, 1.0};
}

/// Raises what names a network: there are none here.
void refuse_networks(View text) {
    for (size_t place = 0; (place = text.find(U'<', place)) != nowhere; ++place) {
        size_t colon = place + 1;
        while (colon < text.size() && in_word(text[colon])) ++colon;
        const size_t end = text.find(U'>', colon);
        if (colon == place + 1 || !is(text, colon, U':') || end == nowhere || end == colon + 1) continue;
        throw SettingError(encoded(text.substr(place, end + 1 - place)) +
                           ": this program has no LoRAs; put them into the weights when it is made");
    }
}

}  // namespace

std::vector<Part> read_prompt(View prompt, int evaluations, bool negative) {
    const std::u32string kept = without_comments(prompt);
    const View text = stripped(kept);
    if (negative) return {{1.0, stages_of(text, evaluations)}};
    refuse_networks(text);
    std::vector<Part> parts;
    for (size_t begin = 0;;) {
        const size_t place = find_word(text, U"AND", begin);
        const auto [part, weight] = weighted(text.substr(begin, place == nowhere ? nowhere : place - begin));
        parts.push_back({weight, stages_of(part, evaluations)});
        if (place == nowhere) return parts;
        begin = place + 3;
    }
}

}  // namespace graphc::images
