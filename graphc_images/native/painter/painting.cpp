#include "painting.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <random>

#include "names.hpp"
#include "noise.hpp"
#include "predictions.hpp"
#include "samplers.hpp"
#include "schedules.hpp"
#include "tables.hpp"
#include "text.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

namespace {

/// A sampler, and the scheduler that stood behind its name, as in "DPM++ 2M Karras".
struct Chosen {
    const tables::KnownSampler * sampler;
    const tables::KnownScheduler * scheduler = nullptr;
};

template <class Row> const Row * found_in(const tables::List<tables::Name> & names, const tables::List<Row> & rows, const std::string & name) {
    for (const tables::Name & each : names) {
        if (plain(name) == each.name) return &rows.rows[each.row];
    }
    return nullptr;
}

template <class Row> std::string all(const tables::List<Row> & rows) {
    std::string names;
    for (const Row & row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
    return names;
}

Chosen sampler_named(const std::string & name) {
    using namespace tables;
    if (const KnownSampler * sampler = found_in(sampler_names, known_samplers, name)) return {sampler};
    const std::string wanted = plain(name);
    for (const KnownScheduler & scheduler : known_schedulers) {
        const std::string ending = " " + plain(scheduler.label);
        if (ending.size() == 1 || wanted.size() <= ending.size()) continue;
        const size_t before = wanted.size() - ending.size();
        const KnownSampler * sampler = found_in(sampler_names, known_samplers, wanted.substr(0, before));
        if (wanted.substr(before) == ending && sampler != nullptr) return {sampler, &scheduler};
    }
    throw SettingError("there is no sampler '" + name + "'; there are " + all(known_samplers));
}

const tables::KnownScheduler & scheduler_named(const std::string & name) {
    const tables::KnownScheduler * found = found_in(tables::scheduler_names, tables::known_schedulers, name);
    if (found == nullptr) throw SettingError("there is no scheduler '" + name + "'; there are " + all(tables::known_schedulers));
    return *found;
}

bool is_automatic(const tables::KnownScheduler & scheduler) { return scheduler.name == std::string("automatic"); }

/// The scheduler that was asked for; for "Automatic" the one behind the sampler's name.
const tables::KnownScheduler & scheduler_of(const Asked & asked) {
    const tables::KnownScheduler & named = scheduler_named(asked.scheduler.value());
    const tables::KnownScheduler * behind = sampler_named(asked.sampler.value()).scheduler;
    return is_automatic(named) && behind != nullptr ? *behind : named;
}

/// The row of a table of `samplers.hpp`; nullptr if there is none.
template <class Row> const Row * row_of(const std::vector<Row> & table, const tables::KnownSampler & wanted) {
    for (const Row & row : table) {
        if (std::find(row.names.begin(), row.names.end(), wanted.name) != row.names.end()) return &row;
    }
    return nullptr;
}

bool is_on_times(const tables::KnownSampler & sampler) { return row_of(samplers_on_times(), sampler) != nullptr; }

bool is_pair(const tables::KnownSampler & sampler) { return row_of(pair_sampler_table(), sampler) != nullptr; }

bool is(const tables::KnownSampler & sampler, const char * name) { return sampler.name == std::string(name); }

/// The noise levels that a picture goes through.
std::vector<float> sigmas_of(const Asked & asked, const Levels & levels, const Facts & facts) {
    const tables::KnownSampler & sampler = *sampler_named(*asked.sampler).sampler;
    const tables::KnownScheduler & scheduler = scheduler_of(asked);
    const std::string own = is(sampler, "lcm") ? "lcm_sampler" : *sampler.scheduler == '\0' ? "uniform" : sampler.scheduler;
    std::string name = is_automatic(scheduler) ? own : scheduler.name;
    if (is(sampler, "dpm_fast") || is(sampler, "dpm_adaptive")) name = "exponential";  // whatever is asked for, as in A1111
    ScheduleSettings settings;
    settings.tokens = *asked.width / facts.whole("unit") * (*asked.height / facts.whole("unit")) / 4;
    std::vector<float> sigmas = schedule(name, *asked.steps + sampler.discards, levels, settings);
    if (sampler.discards && sigmas.size() > 2) sigmas.erase(sigmas.end() - 2);
    return sigmas;
}

/// What the denoiser is told over the evaluations.
class Prompts {
public:
    Prompts(const ImageModel & model, const Asked & asked, int evaluations) {
        const auto read = [&](const std::string & text, bool negative) {
            const auto characters = decoded(text);
            if (!characters) throw SettingError("a prompt is no text in UTF-8");
            return read_prompt(*characters, evaluations, negative);
        };
        positive_ = read(asked.prompt, false);
        if (*asked.cfg != 1) negative_ = read(asked.negative, true);
        for (const std::vector<Part> * parts : {&positive_, &negative_}) {
            for (const Part & part : *parts) told_.push_back(told(model, part, asked.clip_skip));
        }
    }

    /// The weights of the prompt's parts.
    std::vector<double> weights() const {
        std::vector<double> found;
        for (const Part & part : positive_) found.push_back(part.weight);
        return found;
    }

    /// The words of the prompt's parts in an evaluation, and then those of the negative prompt, if there is one.
    std::vector<const Words *> at(int evaluation) const {
        std::vector<const Words *> found;
        for (size_t part = 0; part < told_.size(); ++part) {
            const bool negative = part >= positive_.size();
            found.push_back(&told_[part].at((negative ? negative_ : positive_)[negative ? 0 : part].at(evaluation)));
        }
        return found;
    }

private:
    using Told = std::map<std::u32string, Words>;

    /// What the stages of a part tell; they go through the encoder together.
    static Told told(const ImageModel & model, const Part & part, int clip_skip) {
        std::vector<std::u32string> texts;
        for (const Stage & stage : part.stages) {
            if (std::find(texts.begin(), texts.end(), stage.text) == texts.end()) texts.push_back(stage.text);
        }
        std::vector<Words> words = model.encode(texts, clip_skip);
        Told found;
        for (size_t text = 0; text < texts.size(); ++text) found.emplace(texts[text], std::move(words[text]));
        return found;
    }

    std::vector<Part> positive_, negative_;
    std::vector<Told> told_;
};

/// The model with its prompts and the guidance scale, as samplers see it.
class Guided {
public:
    Guided(const ImageModel & model, const Prompts & prompts, const DiscreteLevels & levels, const Size & size, double scale, bool lcm)
        : model_(model), prompts_(prompts), levels_(levels), size_(size), scale_(scale) {
        if (lcm) consistency_.emplace(levels);
    }

    /// The estimate with guidance. Where the scale is 1, the negative prompt is not evaluated.
    Array operator()(const Array & x, double sigma) {
        const bool plain = one() && std::abs(scale_ - 1) <= 1e-9 * std::max(std::abs(scale_), 1.0);  // as Python's isclose
        return evaluate(x, sigma, plain).first;
    }

    /// The same, and the estimate for the negative prompt.
    std::pair<Array, Array> pair(const Array & x, double sigma) { return evaluate(x, sigma, false); }

private:
    /// True if the prompt has one part, which counts once.
    bool one() const { return prompts_.weights() == std::vector<double>{1.0}; }

    std::pair<Array, Array> evaluate(const Array & x, double sigma, bool alone) {
        std::vector<const Words *> told = prompts_.at(count_++);
        const std::vector<double> weights = prompts_.weights();
        alone = alone || told.size() == weights.size();
        if (alone) told.resize(weights.size());
        const double time = consistency_ ? consistency_->time(sigma) : levels_.timestep(sigma, false);
        std::vector<Array> found = model_.estimate(x, size_, sigma, time, told);
        if (consistency_) {
            for (Array & each : found) each = consistency_->bounded(x, each, time);
        }
        const Array & negative = alone ? found.front() : found.back();
        Array positive = one() ? found[0] : negative;
        for (size_t part = 0; !one() && part < weights.size(); ++part) {
            positive = positive + (found[part] - negative) * weights[part];
        }
        return {alone ? positive : guided(positive, negative, scale_), negative};
    }

    const ImageModel & model_;
    const Prompts & prompts_;
    const DiscreteLevels & levels_;
    Size size_;
    double scale_;
    std::optional<ConsistencyModel> consistency_;
    int count_ = 0;
};

int side_of(const char * name, int side, const Facts & facts) {
    const int unit = facts.whole("unit");
    if (unit < 1 || side % unit != 0) {
        throw SettingError(std::string(name) + ": " + std::to_string(side) + " is not a multiple of " + std::to_string(unit) +
                           ", which " + facts.text("architecture") + " needs");
    }
    return side;
}

/// A number as Python writes it, a whole one without its point.
std::string written(double number) {
    if (number == std::floor(number)) return std::to_string(static_cast<long long>(number));
    char text[64];
    const auto form = std::abs(number) < 1e-4 ? std::chars_format::scientific : std::chars_format::fixed;
    return {text, std::to_chars(text, text + sizeof text, number, form).ptr};
}

/// A value in the line of settings: as JSON where it could not be told from what is around it.
std::string quoted(const std::string & text) {
    if (text.find_first_of(",:\n") == std::string::npos) return text;
    std::string json = "\"";
    for (const char each : text) {
        if (each == '"' || each == '\\') json += '\\';
        json += each;
    }
    return json + '"';
}

}  // namespace

Asked resolved(Asked asked, const Facts & facts) {
    if (!asked.scheduler) asked.scheduler = asked.sampler ? "Automatic" : facts.text("scheduler");
    if (!asked.sampler) asked.sampler = facts.text("sampler");
    asked.width = side_of("width", asked.width.value_or(facts.whole("width")), facts);
    asked.height = side_of("height", asked.height.value_or(facts.whole("height")), facts);
    asked.steps = asked.steps.value_or(facts.whole("steps"));
    asked.cfg = asked.cfg.value_or(facts.number("cfg"));
    if (asked.seed.value_or(-1) < 0) asked.seed = static_cast<int64_t>(std::random_device()() % 4294967294u);
    sampler_named(*asked.sampler);
    scheduler_of(asked);
    generator_of(asked.generator);
    return asked;
}

Picture paint(const ImageModel & model, const Asked & asked, const OnStep & on_step) {
    const Facts & facts = model.facts();
    const int unit = facts.whole("unit");
    const Size size{*asked.height / unit, *asked.width / unit};
    const tables::KnownSampler & sampler = *sampler_named(*asked.sampler).sampler;
    const DiscreteLevels levels = scaled_linear(facts.whole("zero_snr") != 0, true);
    const bool on_times = is_on_times(sampler), pair = is_pair(sampler) || is(sampler, "ddim_cfg_pp");
    const std::vector<int> times = on_times ? a1111_timesteps(*asked.steps) : std::vector<int>{};
    const std::vector<float> sigmas = on_times ? std::vector<float>{} : sigmas_of(asked, levels, facts);
    const int steps = static_cast<int>(std::max(times.size(), sigmas.size())) - 1;
    const Prompts prompts(model, asked, std::max(steps, 1) * sampler.evaluations);
    const double scale = *asked.cfg / (is(sampler, "ddim_cfg_pp") ? 12.5 : 1.0);
    Guided guidance(model, prompts, levels, size, scale, is(sampler, "lcm"));
    const PairModel both = [&](const Array & x, double sigma) { return guidance.pair(x, sigma); };

    const std::vector<std::uint64_t> seeds = {static_cast<std::uint64_t>(*asked.seed)};
    ImageNoise noise(size.count(), seeds, asked.generator);
    const Array first = noise.first();
    Noise more = std::ref(noise);
    const Sampler * by_levels = row_of(sampler_table(), sampler);
    if (!on_times && by_levels != nullptr && by_levels->brownian) more = BrownianNoise(size.count(), seeds, sigmas, asked.generator);

    SamplerSettings settings;
    settings.levels = &levels;
    settings.noisy_from = levels.sigma_at(0.2);
    settings.noisy_to = levels.sigma_at(0.8);
    settings.watch = [&](size_t index, double, const Array &, const Array &) { on_step(static_cast<int>(index) + 1, steps); };
    Array latent;
    if (on_times) {
        latent = pair ? sample_on_times(sampler.name, both, first, times, levels, more, settings)
                      : sample_on_times(sampler.name, Model(std::ref(guidance)), first, times, levels, more, settings);
    } else {
        const Array x = first * sigmas.front();
        latent = pair ? sample(sampler.name, both, x, sigmas, more, settings)
                      : sample(sampler.name, Model(std::ref(guidance)), x, sigmas, more, settings);
    }
    return model.decode(latent, size);
}

std::string described(const Asked & asked, const Facts & facts) {
    const Chosen chosen = sampler_named(*asked.sampler);
    const tables::KnownScheduler & scheduler = scheduler_of(asked);
    const auto label = [](const auto & row) { return std::string(*row.label == '\0' ? row.name : row.label); };
    std::string generator = asked.generator;
    for (char & each : generator) each = static_cast<char>(std::toupper(static_cast<unsigned char>(each)));
    const std::vector<std::pair<std::string, std::string>> pairs = {
        {"Steps", std::to_string(*asked.steps)},
        {"Sampler", label(*chosen.sampler)},
        {"Schedule type", label(scheduler)},
        {"CFG scale", written(*asked.cfg)},
        {"Seed", std::to_string(*asked.seed)},
        {"Size", std::to_string(*asked.width) + "x" + std::to_string(*asked.height)},
        {"Model hash", facts.text("Model_hash")},
        {"Model", facts.text("Model")},
        {"VAE hash", facts.text("VAE_hash")},
        {"VAE", facts.text("VAE")},
        {"Clip skip", asked.clip_skip > 1 ? std::to_string(asked.clip_skip) : ""},
        {"RNG", generator == "GPU" ? "" : generator},
        {"Version", "graphc " + facts.text("graphc")},
    };
    std::string line;
    for (const auto & [name, value] : pairs) {
        if (!value.empty()) line += (line.empty() ? "" : ", ") + name + ": " + quoted(value);
    }
    std::string text = asked.prompt + "\n";
    if (!asked.negative.empty()) text += "Negative prompt: " + asked.negative + "\n";
    const auto whole = decoded(text + line);
    return whole ? encoded(stripped(*whole)) : line;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images
