#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "graphc/paths.h"
#include "predictions.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

namespace {

/// NumPy's sum of float32 numbers: pairwise, with eight sums within a block of 128.
float pairwise_sum(const float * numbers, size_t count) {
    if (count < 8) {
        float sum = 0;
        for (size_t each = 0; each < count; ++each) sum += numbers[each];
        return sum;
    }
    if (count > 128) {
        const size_t half = count / 2 - count / 2 % 8;
        return pairwise_sum(numbers, half) + pairwise_sum(numbers + half, count - half);
    }
    float sums[8];
    std::copy(numbers, numbers + 8, sums);
    size_t place = 8;
    for (; place < count - count % 8; place += 8) {
        for (size_t each = 0; each < 8; ++each) sums[each] += numbers[place + each];
    }
    float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; place < count; ++place) sum += numbers[place];
    return sum;
}

float mean_of(const Array & numbers) {
    return static_cast<float>(static_cast<double>(pairwise_sum(numbers.data(), numbers.size())) / static_cast<double>(numbers.size()));
}

/// Emphasis: states [texts, tokens, width] times a weight for each token, which then get their old mean.
void weigh(Array & states, const std::vector<float> & weights) {
    const size_t width = states.size() / weights.size();
    const float mean = mean_of(states);
    for (size_t each = 0; each < states.size(); ++each) states[each] *= weights[each / width];
    const float weighted = mean_of(states);
    if (weighted == 0) return;
    const float factor = mean / weighted;
    for (float & each : states) each *= factor;
}

/// A float array of the runtime's.
::graphc::Array given(Shape shape, const Array & numbers) { return ::graphc::Array::of<float>(std::move(shape), numbers); }

constexpr size_t room = 64 * 64, alike = 4;  // pixels of latents that go through the denoiser together, and latents

}  // namespace

Facts::Facts(const std::filesystem::path & file) : file_(text_of(file)) {
    std::ifstream lines(file);
    if (!lines || is_special(file)) throw Error(file_ + ": there is no such file; it lies beside the engines of a model");
    for (std::string line; std::getline(lines, line);) {
        const size_t space = line.find(' ');
        if (space != std::string::npos) values_[line.substr(0, space)] = line.substr(space + 1);
    }
    if (text("painter") != "1") throw Error(file_ + ": it is of another version than this program: " + text("painter").substr(0, 20));
}

const std::string & Facts::text(const std::string & name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw Error(file_ + ": it is damaged: there is no " + name + " in it");
    return found->second;
}

double Facts::number(const std::string & name) const {
    const std::string & said = text(name);
    char * end = nullptr;
    const double value = std::strtod(said.c_str(), &end);
    if (said.empty() || *end != '\0' || !std::isfinite(value) || std::abs(value) > 1e9) {
        throw Error(file_ + ": it is damaged: " + name + " is no number");
    }
    return value;
}

ImageModel::ImageModel(const std::filesystem::path & folder, Facts facts, int threads)
    : facts_(std::move(facts)),
      options_([&] {
          Options options;
          options.threads = threads;
          return options;
      }()),
      text_encoder_(folder / "text_encoder.gguf", options_),
      denoiser_(folder / "denoiser.gguf", options_),
      decoder_(folder / "decoder.gguf", options_) {}

std::vector<Words> ImageModel::encode(const std::vector<std::u32string> & texts, int clip_skip) const {
    const int pad = facts_.whole("pad");
    std::vector<std::vector<Chunk>> rows;
    size_t most = 0;
    for (const std::u32string & text : texts) {
        rows.push_back(chunk_prompt(text, tokenizer_, pad));
        most = std::max(most, rows.back().size());
    }
    const Chunk empty = chunk_prompt(U"", tokenizer_, pad).front();
    for (std::vector<Chunk> & row : rows) row.resize(most, empty);
    const int layer = facts_.whole("layer");
    const int last = facts_.whole("skips") != 0 ? std::max(layer, clip_skip) : layer;

    std::vector<Words> words(texts.size(), Words{{}, 0});
    for (size_t place = 0; place < most; ++place) {
        std::vector<int64_t> ids;
        std::vector<float> weights;
        for (const std::vector<Chunk> & row : rows) {
            ids.insert(ids.end(), row[place].ids.begin(), row[place].ids.end());
            for (const double weight : row[place].weights) weights.push_back(static_cast<float>(weight));
        }
        const auto tokens = static_cast<int64_t>(ids.size() / texts.size());
        std::map<std::string, ::graphc::Array> inputs;
        inputs["input_ids"] = ::graphc::Array::of<int64_t>({static_cast<int64_t>(texts.size()), tokens}, ids);
        const auto found = text_encoder_.Model::run(inputs);
        const ::graphc::Array & layers = found.at("normed");  // [layers, texts, tokens, width]
        if (last < 1 || last > layers.shape()[0]) {
            throw SettingError("clip skip " + std::to_string(last) + ": the text encoder has " +
                               std::to_string(layers.shape()[0]) + " layers");
        }
        const size_t size = layers.size() / static_cast<size_t>(layers.shape()[0]);
        const float * start = layers.data<float>() + size * static_cast<size_t>(layers.shape()[0] - last);
        Array states(start, start + size);
        if (std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 1; })) weigh(states, weights);
        const size_t own = size / texts.size();
        for (size_t text = 0; text < texts.size(); ++text) {
            const float * from = states.data() + text * own;
            words[text].states.insert(words[text].states.end(), from, from + own);
            words[text].tokens += static_cast<int>(tokens);
        }
    }
    return words;
}

std::vector<Array> ImageModel::estimate(const Array & x, const Size & size, double sigma, double time,
                                   const std::vector<const Words *> & told) const {
    const Prediction & prediction = prediction_of(facts_.text("prediction"));
    const Array scaled = x * prediction.scale(sigma);
    std::vector<Array> found;
    const size_t together = std::clamp<size_t>(room * 4 / size.count(), 1, alike);
    for (size_t begin = 0, end = 0; begin < told.size(); begin = end) {  // neighbours of the same length go together
        while (end < told.size() && end - begin < together && told[end]->tokens == told[begin]->tokens) ++end;
        for (const Array & each : predict(scaled, size, time, {told.begin() + static_cast<std::ptrdiff_t>(begin),
                                                               told.begin() + static_cast<std::ptrdiff_t>(end)})) {
            found.push_back(prediction.denoised(x, each, sigma));
        }
    }
    return found;
}

std::vector<Array> ImageModel::predict(const Array & x, const Size & size, double time, const std::vector<const Words *> & told) const {
    const auto batch = static_cast<int64_t>(told.size());
    Array rows, states;
    for (const Words * each : told) {
        rows.insert(rows.end(), x.begin(), x.end());
        states.insert(states.end(), each->states.begin(), each->states.end());
    }
    const int64_t tokens = told[0]->tokens, width = static_cast<int64_t>(told[0]->states.size()) / tokens;
    std::map<std::string, ::graphc::Array> inputs;
    inputs["sample"] = given({batch, 4, size.height, size.width}, rows);
    inputs["timestep"] = given({batch}, Array(told.size(), static_cast<float>(time)));
    inputs["encoder_hidden_states"] = given({batch, tokens, width}, states);
    for (const InputInfo & input : denoiser_.info().inputs) {
        if (input.name == "perturbed") inputs["perturbed"] = given({batch}, Array(told.size(), 0.0f));
    }
    const auto outputs = denoiser_.Model::run(inputs);
    const float * predictions = outputs.begin()->second.data<float>();
    std::vector<Array> found;
    for (size_t each = 0; each < told.size(); ++each) {
        found.emplace_back(predictions + each * size.count(), predictions + (each + 1) * size.count());
    }
    return found;
}

Picture ImageModel::decode(const Array & latent, const Size & size) const {
    std::map<std::string, ::graphc::Array> inputs;
    inputs["latent"] = given({1, 4, size.height, size.width}, latent / facts_.number("scale"));
    const ::graphc::Array image = decoder_.Model::run(inputs).at("image");  // [1, 3, height, width]
    Picture picture{static_cast<int>(image.shape()[3]), static_cast<int>(image.shape()[2]), {}};
    const float * numbers = image.data<float>();
    const size_t count = image.size() / 3;
    for (size_t pixel = 0; pixel < count; ++pixel) {
        for (size_t channel = 0; channel < 3; ++channel) {
            const float number = numbers[channel * count + pixel];
            const float share = std::isnan(number) ? 0.0f : (number + 1) / 2;  // what is not a number is black
            picture.pixels.push_back(static_cast<uint8_t>(std::clamp(share, 0.0f, 1.0f) * 255.0f));
        }
    }
    return picture;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images
