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

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
