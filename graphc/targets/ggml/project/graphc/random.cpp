#include "graphc/random.h"

namespace graphc {

namespace {

/// The splitmix64 function: a well-mixed number for each number. (Steele, Lea, Flood: Fast splittable generators, 2014.)
uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/// Multiples of 2^-23 from -1 up to 1, exact in float32.
float real(uint64_t bits) { return (static_cast<float>(bits >> 40) - 8388608.0f) / 8388608.0f; }

template <class T, class F> void fill(Array & array, uint64_t stream, F && number) {
    T * data = array.data<T>();
    for (size_t i = 0; i < array.size(); ++i) data[i] = T(number(mix(stream + i)));
}

}  // namespace

Array random_array(const InputInfo & info, const Shape & shape, uint64_t seed, size_t position) {
    Array array(info.dtype, shape);
    const uint64_t stream = mix(mix(seed) + position);
    const int64_t low = info.bounded ? info.low : 0;
    const uint64_t count = static_cast<uint64_t>(info.bounded ? info.high - info.low : 2);
    const auto whole = [&](uint64_t bits) { return low + static_cast<int64_t>((bits >> 1) % count); };
    switch (info.dtype) {
        case DType::float32: fill<float>(array, stream, real); break;
        case DType::float16: fill<float16>(array, stream, real); break;
        case DType::bfloat16: fill<bfloat16>(array, stream, real); break;
        case DType::float64: fill<double>(array, stream, real); break;
        case DType::int8: fill<int8_t>(array, stream, whole); break;
        case DType::uint8: fill<uint8_t>(array, stream, whole); break;
        case DType::boolean: fill<bool>(array, stream, whole); break;
        case DType::int16: fill<int16_t>(array, stream, whole); break;
        case DType::uint16: fill<uint16_t>(array, stream, whole); break;
        case DType::int32: fill<int32_t>(array, stream, whole); break;
        case DType::uint32: fill<uint32_t>(array, stream, whole); break;
        case DType::int64: fill<int64_t>(array, stream, whole); break;
        case DType::uint64: fill<uint64_t>(array, stream, whole); break;
        default:
            for (size_t i = 0; i < array.size(); ++i) array.bytes()[i] = std::byte(whole(mix(stream + i)));
    }
    return array;
}

}  // namespace graphc
