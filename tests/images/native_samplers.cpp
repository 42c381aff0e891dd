// Answers test_native_samplers.py: each line that it reads is a question, and it prints the numbers of the answer in hexadecimal.

#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>

#include "noise.hpp"
#include "predictions.hpp"
#include "samplers.hpp"
#include "schedules.hpp"

using namespace graphc::images;

namespace {

Mode mode_of(const std::string & name) { return name == "comfyui" ? Mode::comfyui : Mode::a1111; }

std::unique_ptr<Levels> levels_of(const std::string & name, Mode mode) {
    const bool narrow = mode == Mode::a1111;
    if (name == "sd") return std::make_unique<DiscreteLevels>(scaled_linear(false, narrow));
    if (name == "zero_snr") return std::make_unique<DiscreteLevels>(scaled_linear(true, narrow));
    if (name == "edm") return std::make_unique<ContinuousLevels>(0.002, 120.0);
    return std::make_unique<FlowLevels>(flow_levels(name, mode));
}

/// The numbers to the end of the line.
template <typename Number>
std::vector<Number> rest(std::istringstream & words) {
    std::vector<Number> numbers;
    for (std::string word; words >> word;) numbers.push_back(static_cast<Number>(std::stod(word)));
    return numbers;
}

/// A model whose sine is the programs', and one that needs exact operations alone.
Model model_of(const std::string & name) {
    const bool sine = name == "sine";
    return [sine](const Array & x, double sigma) {
        Array found = x;
        for (float & each : found) {
            each = sine ? static_cast<float>(std::sin(static_cast<double>(each))) : each / (std::abs(each) + 1.0f);
        }
        return sine ? found / (1 + sigma) : found * (1 / (1 + sigma));
    };
}

Array noise(std::istringstream & words) {
    std::string generator;
    std::uint64_t seed = 0;
    words >> generator >> seed;
    const auto made = generator_of(generator)(seed);
    Array numbers;
    for (const std::size_t count : rest<std::size_t>(words)) {
        const Array more = made->normal(count);
        numbers.insert(numbers.end(), more.begin(), more.end());
    }
    return numbers;
}

/// Two images' noise: their seeds and size, how many levels there are, the levels; then ways from a level to another.
Array brownian(std::istringstream & words) {
    std::string generator;
    std::vector<std::uint64_t> seeds(2);
    std::size_t size = 0, count = 0;
    words >> generator >> seeds[0] >> seeds[1] >> size >> count;
    std::vector<float> sigmas(count);
    for (float & sigma : sigmas) words >> sigma;
    BrownianNoise source(size, seeds, sigmas, generator);
    Array found;
    const auto ways = rest<double>(words);
    for (std::size_t i = 0; i + 1 < ways.size(); i += 2) {
        const Array way = source(ways[i], ways[i + 1]);
        found.insert(found.end(), way.begin(), way.end());
    }
    return found;
}

/// An increment of a tree: seed, size, ends of the tree, ends of the increment.
Array tree(std::istringstream & words) {
    std::uint64_t seed = 0;
    std::size_t size = 0;
    words >> seed >> size;
    const auto ends = rest<double>(words);
    return BrownianTree(ends.at(0), ends.at(1), size, seed, generator_of("cpu"))(ends.at(2), ends.at(3));
}

Array of_schedule(std::istringstream & words) {
    std::string name, levels, mode;
    int steps = 0;
    ScheduleSettings settings;
    words >> name >> steps >> levels >> mode >> settings.tokens >> settings.family;
    settings.mode = mode_of(mode);
    return schedule(name, steps, *levels_of(levels, settings.mode), settings);
}

/// Each of the model's times for noise levels, whole and not, and the levels of those times.
Array times(std::istringstream & words) {
    std::string name, mode;
    words >> name >> mode;
    const auto levels = levels_of(name, mode_of(mode));
    Array numbers;
    for (const double sigma : rest<double>(words)) {
        const double time = levels->timestep(sigma, false);
        for (const double number : {time, levels->timestep(sigma), levels->sigma(time)}) {
            numbers.push_back(static_cast<float>(number));
        }
    }
    return numbers;
}

/// x of `count` numbers: the generator's first, times the highest level; or all the highest level, and noise that is 0.5.
Array of_sampler(std::istringstream & words) {
    std::string name, mode, levels, model;
    std::size_t count = 0;
    double eta = 0;
    words >> name >> mode >> levels >> model >> eta >> count;
    std::replace(name.begin(), name.end(), '|', ' ');
    const auto sigmas = rest<float>(words);
    const auto of_model = levels_of(levels, mode_of(mode));
    SamplerSettings settings;
    settings.mode = mode_of(mode);
    settings.path = path_of(find_sampler(name), *of_model, settings.mode);
    settings.levels = dynamic_cast<const DiscreteLevels *>(of_model.get());
    settings.noisy_from = of_model->sigma_at(0.2);
    settings.noisy_to = of_model->sigma_at(0.8);
    if (eta >= 0) settings.eta = eta;
    if (model == "sine") {  // the levels of the programs' numbers
        settings.noisy_from = of_model->path.flow ? 0.9231 : 5.0924;
        settings.noisy_to = of_model->path.flow ? 0.4285 : 0.5712;
        const auto half = [count](double, double) { return Array(count, 0.5f); };
        return sample(name, model_of(model), Array(count, sigmas[0]), sigmas, half, settings);
    }
    BatchNoise source(count, 3);
    const Array x = source.first() * static_cast<double>(sigmas[0]);
    std::size_t steps = 0;
    Array seen;
    settings.watch = [&](std::size_t index, double, const Array & now, const Array &) {
        if (index != steps++) throw SettingError("a step was left out");
        seen = now;
    };
    const Array found = sample(name, model_of(model), x, sigmas, source, settings);
    if (steps > 0 && seen != found) throw SettingError("the last step is not the result");
    return found;
}

/// A sampler of CFG++ (on levels), or one on times; the negative estimate is half of the other.
Array of_pairs(std::istringstream & words) {
    std::string name, levels;
    double eta = 0;
    bool on_times = false, from_picture = false;
    words >> name >> levels >> eta >> on_times >> from_picture;
    const auto of_model = levels_of(levels, Mode::a1111);
    const std::size_t count = 35;
    SamplerSettings settings;
    settings.path = of_model->path;
    if (eta >= 0) settings.eta = eta;
    const PairModel model = [one = model_of("rational")](const Array & x, double sigma) {
        const Array denoised = one(x, sigma);
        return std::make_pair(denoised, denoised * 0.5);
    };
    BatchNoise source(count, 3);
    const Array x = source.first();
    if (on_times) {
        const auto & table = dynamic_cast<const DiscreteLevels &>(*of_model);
        if (name != "ddim_cfg_pp") return sample_on_times(name, model_of("rational"), x, rest<int>(words), table, source, settings, from_picture);
        return sample_on_times(name, model, x, rest<int>(words), table, source, settings, from_picture);
    }
    const auto sigmas = rest<float>(words);
    return sample(name, model, x * static_cast<double>(sigmas[0]), sigmas, source, settings);
}

/// A network's predictions as estimates, with guidance.
Array of_prediction(std::istringstream & words) {
    std::string name, levels, mode;
    double scale = 0;
    words >> name >> levels >> mode >> scale;
    const auto of_model = levels_of(levels, mode_of(mode));
    Array found;
    for (const double sigma : rest<double>(words)) {
        const auto estimate = [&](double factor) {
            const Network network = [&](const Array & x, double time) { return x * factor + x * (time / 1000); };
            const Array x = TorchCpu(3).normal(35) * sigma;
            if (mode == "lcm") return lcm_denoiser(network, prediction_of(name), dynamic_cast<const DiscreteLevels &>(*of_model))(x, sigma);
            return denoiser(network, prediction_of(name), *of_model, mode == "comfyui")(x, sigma);
        };
        const Array more = guided(estimate(0.75), estimate(-0.4), scale);
        found.insert(found.end(), more.begin(), more.end());
    }
    return found;
}

Array names(std::istringstream &) {
    for (const Sampler & sampler : sampler_table()) {
        for (const std::string & name : sampler.names) std::printf("%s|", name.c_str());
        std::printf("%s|%d|%d|%d;", sampler.scheduler.c_str(), sampler.brownian, sampler.discard_a1111, sampler.discard_comfyui);
    }
    return {};
}

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string question;
        words >> question;
        try {
            const Array answer = question == "noise"      ? noise(words)
                                 : question == "schedule" ? of_schedule(words)
                                 : question == "brownian" ? brownian(words)
                                 : question == "pairs"    ? of_pairs(words)
                                 : question == "predict"  ? of_prediction(words)
                                 : question == "tree"     ? tree(words)
                                 : question == "times"    ? times(words)
                                 : question == "sample"   ? of_sampler(words)
                                                          : names(words);
            for (const float number : answer) std::printf("%a ", static_cast<double>(number));
        } catch (const SettingError & error) {
            std::printf("error: %s", error.what());
        }
        std::printf("\n");
    }
}
