#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "decoder/model.h"
#include "denoiser/model.h"
#include "levels.hpp"
#include "png.hpp"
#include "prompt.hpp"
#include "text_encoder/model.h"

namespace graphc::images {

/// What a denoiser is told by a text: the text encoder's states [tokens, width].
struct Words {
    Array states;
    int tokens;
};

/// A latent's size; it has four channels.
struct Size {
    int height, width;
    size_t count() const { return static_cast<size_t>(4) * static_cast<size_t>(height) * static_cast<size_t>(width); }
};

/// What `model.txt` says of a model: a name and a value in each line.
class Facts {
public:
    /// Throws graphc::Error, and so does what asks for more than the file says.
    explicit Facts(const std::filesystem::path & file);

    const std::string & text(const std::string & name) const;
    double number(const std::string & name) const;
    int whole(const std::string & name) const { return static_cast<int>(number(name)); }

private:
    std::string file_;
    std::map<std::string, std::string> values_;
};

/// A model of Stable Diffusion 1's structure: the folder of its engines, as functions on arrays.
class ImageModel {
public:
    /// Throws graphc::Error.
    ImageModel(const std::filesystem::path & folder, Facts facts, int threads);

    const Facts & facts() const { return facts_; }

    /// What texts that follow one another tell the denoiser. Their mean strength stays as it is without emphasis, over all of them.
    std::vector<Words> encode(const std::vector<std::u32string> & texts, int clip_skip) const;

    /// The estimates of the picture without noise, one for each of the words.
    std::vector<Array> estimate(const Array & x, const Size & size, double sigma, double time,
                                const std::vector<const Words *> & told) const;

    Picture decode(const Array & latent, const Size & size) const;

private:
    std::vector<Array> predict(const Array & x, const Size & size, double time, const std::vector<const Words *> & told) const;

    Facts facts_;
    Options options_;
    ClipTokenizer tokenizer_;
    text_encoder::TextEncoder text_encoder_;
    denoiser::Denoiser denoiser_;
    decoder::Decoder decoder_;
};

}  // namespace graphc::images
