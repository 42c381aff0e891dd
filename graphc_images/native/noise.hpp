// Random numbers, bit for bit those of the programs whose pictures are to be made again: graphc_images/noise in C++.
//
//     graphc::images::Philox philox(seed);               // PyTorch on CUDA; A1111's "GPU" and "NV"
//     graphc::images::TorchCpu torch(seed);              // torch.Generator("cpu").manual_seed(seed)
//     std::vector<float> numbers = torch.normal(16384);  // torch.randn
#ifndef GRAPHC_IMAGES_NOISE_HPP
#define GRAPHC_IMAGES_NOISE_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "arrays.hpp"

namespace graphc::images {

GRAPHC_ROUNDED

constexpr double PI = 3.14159265358979323846;

/// A generator with a state: each call gives further numbers of the standard normal distribution.
struct NormalGenerator {
    virtual ~NormalGenerator() = default;
    virtual Array normal(std::size_t count) = 0;
};

/// Philox 4x32-10: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3 (2011); normal numbers by Box and
/// Muller's method, one for each counter (call, 0, element, 0).
class Philox : public NormalGenerator {
public:
    explicit Philox(std::uint64_t seed) : seed_(seed) {}

    Array normal(std::size_t count) override {
        constexpr double scale = 2.3283064e-10f, to_circle = static_cast<float>(2.3283064e-10 * 6.2831855);
        Array numbers(count);
        for (std::size_t i = 0; i < count; ++i) {
            const auto words = at({calls_, 0, static_cast<std::uint32_t>(i), 0});
            const double uniform = words[0] * scale + scale / 2, direction = words[1] * to_circle + to_circle / 2;
            numbers[i] = static_cast<float>(std::sqrt(-2.0 * std::log(uniform)) * std::sin(direction));
        }
        ++calls_;
        return numbers;
    }

    /// Four words for a counter; the key is the seed.
    std::array<std::uint32_t, 4> at(std::array<std::uint32_t, 4> counter) const {
        auto low = static_cast<std::uint32_t>(seed_), high = static_cast<std::uint32_t>(seed_ >> 32);
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t first = counter[0] * std::uint64_t{0xD2511F53}, second = counter[2] * std::uint64_t{0xCD9E8D57};
            counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ low, static_cast<std::uint32_t>(second),
                       static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ high, static_cast<std::uint32_t>(first)};
            low += 0x9E3779B9;
            high += 0xBB67AE85;
        }
        return counter;
    }

private:
    std::uint64_t seed_;
    std::uint32_t calls_ = 0;
};

/// torch.randn in float32 on the CPU: the Mersenne Twister, and Box and Muller's method in the way of AVX2 and AVX-512.
///
/// PyTorch computes logarithm, sine and cosine there by Cephes' polynomials in float32, with products and sums fused where its
/// compiler fuses them. The same steps are here, so that a seed gives the same bits on every machine.
class TorchCpu : public NormalGenerator {
public:
    /// The seed's lower 32 bits count.
    explicit TorchCpu(std::uint64_t seed) : twister_(static_cast<std::uint32_t>(seed)) {}

    /// torch.rand: numbers in [0, 1), multiples of 2^-24.
    Array uniform(std::size_t count) {
        Array numbers(count);
        for (float & number : numbers) number = static_cast<float>(twister_() & 0xFFFFFF) * 0x1p-24f;
        return numbers;
    }

    /// torch.randint(0, 2**63 - 1, []): what others of PyTorch's draw as a seed.
    std::uint64_t seed() { return words() % 0x7FFFFFFFFFFFFFFF; }

    Array normal(std::size_t count) override {
        if (count < block) {
            Array numbers(count);
            for (float & number : numbers) number = static_cast<float>(one());
            return numbers;
        }
        Array numbers = uniform(count);
        for (std::size_t start = 0; start + block <= count; start += block) box_muller(&numbers[start]);
        if (count % block != 0) {  // the last sixteen are made anew
            Array last = uniform(block);
            box_muller(last.data());
            std::copy(last.begin(), last.end(), numbers.end() - block);
        }
        return numbers;
    }

private:
    static constexpr std::size_t block = 16;  // so many numbers are made of each other; smaller arrays one by one, in float64

    std::uint64_t words() {
        const std::uint64_t high = twister_();
        return high << 32 | twister_();
    }

    /// A number by float64: each second one was left over from the one before.
    double one() {
        if (spare_) return *std::exchange(spare_, std::nullopt);
        constexpr std::uint64_t mask = (std::uint64_t{1} << 53) - 1;
        const double first = static_cast<double>(words() & mask) * 0x1p-53;
        const double second = static_cast<double>(words() & mask) * 0x1p-53;
        const double radius = std::sqrt(-2 * std::log1p(-second)), angle = 2 * PI * first;
        spare_ = radius * std::sin(angle);
        return radius * std::cos(angle);
    }

    /// a * b + c, rounded once to float32 (the product is exact in float64).
    static float fused(float a, float b, float c) { return static_cast<float>(static_cast<double>(a) * b + c); }

    /// Horner's scheme, highest power first.
    template <std::size_t N>
    static float polynomial(float x, const float (&coefficients)[N]) {
        float result = coefficients[0];
        for (std::size_t i = 1; i < N; ++i) result = fused(result, x, coefficients[i]);
        return result;
    }

    /// Cephes' logf for numbers in (0, 1].
    static float logarithm(float x) {
        constexpr float coefficients[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                          -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                          2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
        std::int32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        auto exponent = static_cast<float>((bits >> 23) - 126);
        bits = (bits & 0x007FFFFF) | 0x3F000000;
        float mantissa;
        std::memcpy(&mantissa, &bits, sizeof bits);
        const bool low = mantissa < 0.707106781186547524f;
        const float rest = (mantissa - 1.0f) + (low ? mantissa : 0.0f);
        exponent -= low ? 1.0f : 0.0f;
        const float square = rest * rest, curve = polynomial(rest, coefficients) * rest;
        float tail = fused(curve, square, exponent * -2.12194440e-4f);
        tail = fused(-square, 0.5f, tail);
        return fused(exponent, 0.693359375f, rest + tail);
    }

    /// Cephes' sinf and cosf for numbers in [0, 2 pi].
    static std::pair<float, float> sine_and_cosine(float x) {
        constexpr float of_sine[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
        constexpr float of_cosine[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
        const int octant = (static_cast<int>(x * 1.27323954473516f) + 1) & ~1;
        // -pi/4 in three parts, the first of which times a small whole number is exact
        for (const float part : {-0.78515625f, -2.4187564849853515625e-4f, -3.77489497744594108e-8f}) {
            x = fused(static_cast<float>(octant), part, x);
        }
        const float square = x * x;
        const float cosine = fused(polynomial(square, of_cosine) * square, square, -(square * 0.5f)) + 1.0f;
        const float sine = fused(polynomial(square, of_sine) * square, x, x);
        const bool swapped = octant & 2;
        return {(octant & 4 ? -1.0f : 1.0f) * (swapped ? cosine : sine),
                ((octant + 2) & 4 ? -1.0f : 1.0f) * (swapped ? sine : cosine)};
    }

    /// Sixteen normal numbers in the place of uniform ones: the first eight give radii, the others angles.
    static void box_muller(float * numbers) {
        for (std::size_t i = 0; i < block / 2; ++i) {
            const float radius = std::sqrt(-2.0f * logarithm(1.0f - numbers[i]));
            const auto [sine, cosine] = sine_and_cosine(static_cast<float>(2 * PI) * numbers[i + block / 2]);
            numbers[i] = radius * cosine;
            numbers[i + block / 2] = radius * sine;
        }
    }

    std::mt19937 twister_;
    std::optional<double> spare_;
};

using MakeGenerator = std::function<std::unique_ptr<NormalGenerator>(std::uint64_t seed)>;

/// The kind of generator by A1111's names for it (GPU, NV, CPU) or stable-diffusion.cpp's (cuda, cpu), in upper or lower case.
inline MakeGenerator generator_of(std::string name) {
    for (char & letter : name) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    if (name == "cpu") return [](std::uint64_t seed) { return std::make_unique<TorchCpu>(seed); };
    for (const char * each : {"gpu", "nv", "cuda", "philox"}) {
        if (name == each) return [](std::uint64_t seed) { return std::make_unique<Philox>(seed); };
    }
    throw SettingError("there is no random number generator \"" + name + "\"; there are gpu, nv, cuda, philox, cpu");
}

/// A1111's way: each image of a batch has its own generator, so it can be made again alone.
class ImageNoise {
public:
    /// `size` is the number of elements of one image; each image has a seed. `seed_delta` (ENSD) makes the generators anew
    /// after the first noise, with seeds that much higher.
    ImageNoise(std::size_t size, std::vector<std::uint64_t> seeds, const std::string & generator = "gpu",
               std::int64_t seed_delta = 0)
        : size_(size), seeds_(std::move(seeds)), make_(generator_of(generator)), delta_(seed_delta) {
        if (seeds_.empty()) throw SettingError("there are no seeds: one is needed for each image");
        make();
    }

    /// The noise that the images start from; asked for once, and before any other.
    Array first() {
        Array noise = next();
        if (delta_ != 0) {
            for (std::uint64_t & seed : seeds_) seed += static_cast<std::uint64_t>(delta_);
            make();
        }
        return noise;
    }

    /// Further noise.
    Array next() {
        Array noise;
        for (const auto & generator : generators_) {
            const Array image = generator->normal(size_);
            noise.insert(noise.end(), image.begin(), image.end());
        }
        return noise;
    }

    /// Further noise, as samplers ask for it.
    Array operator()(double, double) { return next(); }

private:
    void make() {
        generators_.clear();
        for (const std::uint64_t seed : seeds_) generators_.push_back(make_(seed));
    }

    std::size_t size_;
    std::vector<std::uint64_t> seeds_;
    MakeGenerator make_;
    std::int64_t delta_;
    std::vector<std::shared_ptr<NormalGenerator>> generators_;
};

/// ComfyUI's way: one generator for the batch, another, which starts at the seed plus one, for the sampler.
class BatchNoise {
public:
    /// `size` is the number of elements of the whole batch.
    BatchNoise(std::size_t size, std::uint64_t seed, const std::string & generator = "cpu")
        : size_(size), seed_(seed), make_(generator_of(generator)), generator_(make_(seed + 1)) {}

    /// The noise that the images start from.
    Array first() const { return make_(seed_)->normal(size_); }

    /// Further noise.
    Array next() { return generator_->normal(size_); }

    /// Further noise, as samplers ask for it.
    Array operator()(double, double) { return next(); }

private:
    std::size_t size_;
    std::uint64_t seed_;
    MakeGenerator make_;
    std::shared_ptr<NormalGenerator> generator_;
};

/// NumPy's SeedSequence (O'Neill's seed_seq): words for a seed, of which children have keys.
class SeedSequence {
public:
    SeedSequence(std::uint64_t seed, const std::vector<std::uint64_t> & key, std::size_t pool_size) : pool_(pool_size, 0) {
        std::vector<std::uint32_t> entropy = split(seed);
        if (!key.empty()) entropy.resize(std::max(entropy.size(), pool_size), 0);
        for (const std::uint64_t each : key) {
            const auto more = split(each);
            entropy.insert(entropy.end(), more.begin(), more.end());
        }
        std::uint32_t constant = 0x43B0D7E5;
        for (std::size_t i = 0; i < pool_size; ++i) pool_[i] = hashed(i < entropy.size() ? entropy[i] : 0, constant);
        for (std::size_t from = 0; from < pool_size; ++from) {
            for (std::size_t to = 0; to < pool_size; ++to) {
                if (from != to) pool_[to] = mixed(pool_[to], hashed(pool_[from], constant));
            }
        }
        for (std::size_t from = pool_size; from < entropy.size(); ++from) {
            for (std::uint32_t & to : pool_) to = mixed(to, hashed(entropy[from], constant));
        }
    }

    /// The first word of `generate_state`.
    std::uint32_t first() const {
        const std::uint32_t constant = 0x8B51F9DD * 0x58F38DED;
        const std::uint32_t word = (pool_[0] ^ 0x8B51F9DD) * constant;
        return word ^ word >> 16;
    }

private:
    static std::vector<std::uint32_t> split(std::uint64_t number) {
        std::vector<std::uint32_t> words = {static_cast<std::uint32_t>(number)};
        if (number >> 32 != 0) words.push_back(static_cast<std::uint32_t>(number >> 32));
        return words;
    }

    static std::uint32_t hashed(std::uint32_t value, std::uint32_t & constant) {
        value ^= constant;
        constant *= 0x931E8875;
        value *= constant;
        return value ^ value >> 16;
    }

    static std::uint32_t mixed(std::uint32_t x, std::uint32_t y) {
        const std::uint32_t result = 0xCA01F9DD * x - 0x4973F715 * y;
        return result ^ result >> 16;
    }

    std::vector<std::uint32_t> pool_;
};

/// torchsde 0.2.6's BrownianTree: Li, Wong, Chen, Duvenaud, Scalable Gradients for Stochastic Differential Equations (2020).
///
/// Half of an interval is known when its middle is drawn, from a seed that its place in the tree gives; so the values do not
/// depend on the order of the questions. Times are rounded to six digits.
class BrownianTree {
public:
    /// A Brownian motion on [start, end], an array of `size` elements at each time.
    BrownianTree(double start, double end, std::size_t size, std::uint64_t seed, MakeGenerator make)
        : size_(size), seed_(seed), make_(std::move(make)), whole_{0, 0, six_digits(start), six_digits(end)} {
        increment_ = make_(SeedSequence(seed, {}, pool).first())->normal(size) * std::sqrt(end - start);
    }

    /// The increment from `start` to `end`, of which the first is the smaller; what lies outside counts as the boundary.
    Array operator()(double start, double end) {
        start = six_digits(std::min(std::max(start, whole_.start), whole_.end));
        end = six_digits(std::min(std::max(end, whole_.start), whole_.end));
        if (start == end) return Array(size_, 0.0f);
        Array total;
        add_pieces(total, whole_, increment_, start, end);
        if (remembered_.size() > most) remembered_.clear();
        return total;
    }

private:
    static constexpr std::size_t pool = 24, most = 96;

    /// An interval of the tree: its number within its depth, and its ends.
    struct Node {
        std::uint64_t key, depth;
        double start, end;
    };

    /// Rounded to six decimals, exactly as Python rounds.
    static double six_digits(double time) {
        char text[64];
        std::snprintf(text, sizeof text, "%.6f", time);
        return std::strtod(text, nullptr);
    }

    /// The increments of the nodes that make up [start, end], from left to right.
    void add_pieces(Array & total, const Node & node, const Array & increment, double start, double end) {
        if (start == node.start && end == node.end) {
            total = total.empty() ? increment : total + increment;
            return;
        }
        const double middle = six_digits(0.5 * (node.end + node.start));
        const Node left{2 * node.key, node.depth + 1, node.start, middle}, right{2 * node.key + 1, node.depth + 1, middle, node.end};
        const Array of_left = left_half(node, middle, increment);
        if (start < middle) add_pieces(total, left, of_left, start, std::min(end, middle));
        if (end > middle) add_pieces(total, right, increment - of_left, std::max(start, middle), end);
    }

    /// Brownian bridge: what falls to the left half, given the whole increment.
    Array left_half(const Node & node, double middle, const Array & increment) {
        const auto found = remembered_.find({node.depth, node.key});
        if (found != remembered_.end()) return found->second;
        const Array noise = make_(SeedSequence(seed_, {node.key, node.depth}, pool).first())->normal(size_);
        const double before = middle - node.start, after = node.end - middle, share = 1 / (node.end - node.start);
        const Array left = increment * before * share + noise * std::sqrt(before * after * share);
        return remembered_[{node.depth, node.key}] = left;
    }

    std::size_t size_;
    std::uint64_t seed_;
    MakeGenerator make_;
    Node whole_;
    Array increment_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, Array> remembered_;
};

/// Noise for the way from one noise level to another, as k-diffusion's BrownianTreeNoiseSampler gives it: for samplers of SDEs.
class BrownianNoise {
public:
    /// `size` is the number of elements of one image; there is a tree for each image, with its seed (A1111). For one tree for a
    /// whole batch (ComfyUI), give its size and one seed. The levels are those of the whole schedule.
    BrownianNoise(std::size_t size, const std::vector<std::uint64_t> & seeds, const std::vector<float> & sigmas,
                  const std::string & generator = "gpu") {
        float low = std::numeric_limits<float>::infinity(), high = 0;
        for (const float sigma : sigmas) {
            if (sigma > 0) low = std::min(low, sigma), high = std::max(high, sigma);
        }
        if (high == 0) throw SettingError("a schedule for Brownian noise needs a noise level above 0");
        if (seeds.empty()) throw SettingError("there are no seeds: Brownian noise needs one for each image");
        for (const std::uint64_t seed : seeds) trees_.emplace_back(low, high, size, seed, generator_of(generator));
    }

    /// The noise of all images; its sign turns where the noise level falls.
    Array operator()(double sigma, double sigma_next) {
        const auto from = static_cast<float>(sigma), to = static_cast<float>(sigma_next);
        const float length = std::sqrt(std::abs(to - from)), sign = sigma_next < sigma ? -1.0f : 1.0f;
        Array noise;
        for (BrownianTree & tree : trees_) {
            for (const float each : tree(std::min(from, to), std::max(from, to))) noise.push_back(sign * each / length);
        }
        return noise;
    }

private:
    std::vector<BrownianTree> trees_;
};

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
