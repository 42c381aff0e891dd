// Samplers and schedulers are found by the names that A1111, ComfyUI, diffusers and stable-diffusion.cpp have for them.
#ifndef GRAPHC_IMAGES_NAMES_HPP
#define GRAPHC_IMAGES_NAMES_HPP

#include "arrays.hpp"

namespace graphc::images {

/// A name without what spelling changes: case, spaces around it, and diffusers' ending.
inline std::string plain(const std::string & name) {
    const std::string spaces = " \t\r\n", ending = "scheduler";
    const std::size_t start = name.find_first_not_of(spaces);
    if (start == std::string::npos) return "";
    std::string found = name.substr(start, name.find_last_not_of(spaces) + 1 - start);
    for (char & letter : found) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    const bool ends = found.size() >= ending.size() && found.substr(found.size() - ending.size()) == ending;
    return ends ? found.substr(0, found.size() - ending.size()) : found;
}

/// The entry of a table that has this name among its `names`; `what` says what it is, should there be none.
template <typename Entry>
const Entry & named(const std::vector<Entry> & table, const std::string & name, const std::string & what) {
    std::string known;
    for (const Entry & entry : table) {
        for (const std::string & each : entry.names) {
            if (plain(each) == plain(name)) return entry;
        }
        known += (known.empty() ? "" : ", ") + entry.names.front();
    }
    throw SettingError("there is no " + what + " \"" + name + "\"; there are " + known);
}

}  // namespace graphc::images

#endif
