#pragma once

#include <cstddef>
#include <cstdint>

/// What `graphc_images/native_tables.py` writes: Unicode's characters as the Python that wrote them knows them, CLIP's pairs, and the
/// names of samplers and schedulers.
namespace graphc::images::tables {

/// From a character on, up to the next row's, all have this value.
struct Range {
    char32_t first;
    uint8_t value;
};

/// A character, and up to four that stand for it; 0 behind the last.
struct Spelling {
    char32_t character;
    char32_t spelled[4];
};

/// Two characters that are one.
struct Composition {
    char32_t first, second, composed;
};

/// A name that people type, as `plain` has it, and the number of the row that it means.
struct Name {
    const char * name;
    int row;
};

/// A sampler: its own name and A1111's, the scheduler that A1111 takes for "Automatic", how often it evaluates the model in a step,
/// as A1111 counts it, and whether the last noise level but one is left out.
struct KnownSampler {
    const char * name;
    const char * label;
    const char * scheduler;
    int evaluations;
    bool discards;
};

/// A scheduler: its own name and A1111's.
struct KnownScheduler {
    const char * name;
    const char * label;
};

template <class T> struct List {
    const T * rows;
    size_t count;
    const T * begin() const { return rows; }
    const T * end() const { return rows + count; }
};

/// Bits of `kinds`.
enum Kind : uint8_t {
    letter = 1,   // to the tokenizer
    number = 2,   // … and nothing else
    blank = 4,    // white space to the tokenizer
    space = 8,    // white space to Python, which has four characters more
    in_word = 16, // a letter, a digit or _ : what a word has
    decimal = 32, // a digit from 0 to 9
};

extern const List<Range> kinds;
extern const List<Range> combining_classes;
extern const List<Spelling> lower_cases;
extern const List<Spelling> decompositions;   // canonical and whole; not of Hangul
extern const List<Composition> compositions;  // in the order of their characters; not of Hangul
extern const List<char32_t> zeros;            // the first of each row of decimal digits

/// CLIP's pairs of ids in the order in which they were learned; the first becomes the id 512.
extern const List<uint16_t[2]> clip_pairs;

/// The id of each byte within a word; at its end it is 256 more.
extern const uint16_t clip_bytes[256];

extern const List<KnownSampler> known_samplers;
extern const List<Name> sampler_names;
extern const List<KnownScheduler> known_schedulers;
extern const List<Name> scheduler_names;

}  // namespace graphc::images::tables
