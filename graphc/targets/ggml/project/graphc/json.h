#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace graphc {

/// A JSON document of strings, whole numbers, lists and objects; other numbers, `true` and `false` are there and cannot be read.
/// Documents come from strangers: what is not there, or is something else, throws Error.
class Json {
  public:
    using List = std::vector<Json>;
    using Object = std::map<std::string, Json, std::less<>>;

    /// Throws Error for what is not JSON, is deeper than 64, or has a name twice in an object.
    static Json parse(std::string_view text);

    bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
    const std::string & string() const { return get<std::string>("a string"); }
    int64_t integer() const { return get<int64_t>("a whole number"); }
    const List & list() const { return get<List>("a list"); }
    const Object & object() const { return get<Object>("an object"); }

    /// A list of whole numbers.
    std::vector<int64_t> integers() const;

    /// What an object has under a name.
    const Json & operator[](std::string_view name) const;
    const Json * find(std::string_view name) const;

  private:
    friend class JsonReader;
    struct Other {};

    template <class T> const T & get(const char * wanted) const {
        const T * found = std::get_if<T>(&value_);
        if (found == nullptr) refuse(wanted);
        return *found;
    }
    [[noreturn]] static void refuse(const std::string & wanted);

    std::variant<std::nullptr_t, int64_t, std::string, List, Object, Other> value_;
};

}  // namespace graphc
