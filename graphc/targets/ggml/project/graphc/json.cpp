#include "graphc/json.h"

#include "graphc/error.h"

#include <charconv>
#include <cstring>

namespace graphc {

namespace {

constexpr int deepest = 64;

}  // namespace

/// Takes a document apart, from its front.
class JsonReader {
  public:
    explicit JsonReader(std::string_view text) : text_(text) {}

    Json document() {
        Json found = value(0);
        space();
        if (at_ != text_.size()) fail();
        return found;
    }

  private:
    [[noreturn]] static void fail() { throw Error("is damaged: what should be JSON is not"); }

    void space() {
        while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
    }

    /// True if a character comes next, which is then passed.
    bool taken(char wanted) {
        space();
        if (at_ == text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    void expect(char wanted) {
        if (!taken(wanted)) fail();
    }

    bool word(std::string_view wanted) {
        if (text_.compare(at_, wanted.size(), wanted) != 0) return false;
        at_ += wanted.size();
        return true;
    }

    Json value(int depth) {
        if (depth > deepest) fail();
        space();
        if (at_ == text_.size()) fail();
        Json found;
        if (text_[at_] == '{') {
            found.value_ = object(depth);
        } else if (text_[at_] == '[') {
            found.value_ = list(depth);
        } else if (text_[at_] == '"') {
            found.value_ = string();
        } else if (word("true") || word("false")) {
            found.value_ = Json::Other{};
        } else if (!word("null")) {
            number(found);
        }
        return found;
    }

    Json::Object object(int depth) {
        Json::Object found;
        expect('{');
        if (taken('}')) return found;
        do {
            space();
            std::string name = string();
            expect(':');
            if (!found.emplace(std::move(name), value(depth + 1)).second) throw Error("is damaged: a name is in it twice");
        } while (taken(','));
        expect('}');
        return found;
    }

    Json::List list(int depth) {
        Json::List found;
        expect('[');
        if (taken(']')) return found;
        do {
            found.push_back(value(depth + 1));
        } while (taken(','));
        expect(']');
        return found;
    }

    void number(Json & found) {
        const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
        const std::string_view digits = text_.substr(at_, end - at_);
        if (digits.empty()) fail();
        int64_t whole = 0;
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
        at_ = end;
        if (read.ec == std::errc() && read.ptr == digits.data() + digits.size()) {
            found.value_ = whole;
        } else {
            found.value_ = Json::Other{};
        }
    }

    std::string string() {
        std::string found;
        expect('"');
        while (true) {
            const size_t end = text_.find_first_of("\"\\", at_);
            if (end == std::string_view::npos) fail();
            found += text_.substr(at_, end - at_);
            at_ = end + 1;
            if (text_[end] == '"') return found;
            escaped(found);
        }
    }

    void escaped(std::string & found) {
        static constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        if (at_ == text_.size()) fail();
        const char letter = text_[at_++];
        const size_t place = letters.find(letter);
        if (place != std::string_view::npos) {
            found += meant[place];
        } else if (letter == 'u') {
            uint32_t code = unit();
            if (code >= 0xD800 && code < 0xDC00 && word("\\u")) code = 0x10000 + ((code - 0xD800) << 10) + (unit() - 0xDC00);
            append(found, code);
        } else {
            fail();
        }
    }

    /// Four hexadecimal digits.
    uint32_t unit() {
        uint32_t code = 0;
        if (text_.size() - at_ < 4) fail();
        const char * begin = text_.data() + at_;
        if (std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4) fail();
        at_ += 4;
        return code;
    }

    /// A character in UTF-8.
    static void append(std::string & text, uint32_t code) {
        const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
        if (code < 0x80) {
            text += static_cast<char>(code);
        } else if (code < 0x800) {
            text += static_cast<char>(0xC0 | (code >> 6));
            tail(0);
        } else if (code < 0x10000) {
            text += static_cast<char>(0xE0 | (code >> 12));
            tail(6), tail(0);
        } else {
            text += static_cast<char>(0xF0 | ((code >> 18) & 7));
            tail(12), tail(6), tail(0);
        }
    }

    std::string_view text_;
    size_t at_ = 0;
};

Json Json::parse(std::string_view text) { return JsonReader(text).document(); }

std::vector<int64_t> Json::integers() const {
    std::vector<int64_t> found;
    for (const Json & each : list()) found.push_back(each.integer());
    return found;
}

const Json & Json::operator[](std::string_view name) const {
    const Json * found = find(name);
    if (found == nullptr) refuse("'" + std::string(name) + "'");
    return *found;
}

const Json * Json::find(std::string_view name) const {
    const auto found = object().find(name);
    return found == object().end() ? nullptr : &found->second;
}

void Json::refuse(const std::string & wanted) { throw Error("is damaged: it lacks " + wanted); }

}  // namespace graphc
