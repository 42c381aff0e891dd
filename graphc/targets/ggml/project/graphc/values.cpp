#include "graphc/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>

namespace graphc {

namespace {

[[noreturn]] void misfit() { throw Error("is damaged: a recipe does not fit its parameters"); }

void require(bool fits) {
    if (!fits) misfit();
}

/// A tensor as an array of units: elements, or blocks along the last axis.
struct Units {
    Shape shape;
    size_t size;
};

bool plain(ggml_type type) { return ggml_blck_size(type) == 1; }

Units units_of(const Values & x) {
    Units units{x.shape, ggml_type_size(x.type)};
    if (!plain(x.type)) units.shape.back() /= ggml_blck_size(x.type);
    return units;
}

/// Bytes from one unit to the next, along each axis.
std::vector<int64_t> strides_of(const Shape & shape, size_t size) {
    std::vector<int64_t> strides(shape.size(), static_cast<int64_t>(size));
    for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    return strides;
}

/// Calls `row` for the first bytes of each row of a shape, in order, in as many sources as there are lists of strides.
template <size_t N, class F>
void for_rows(const Shape & shape, std::array<const std::byte *, N> from, const std::array<std::vector<int64_t>, N> & strides, F && row) {
    if (element_count(shape, 1) == 0) return;
    const size_t axes = shape.empty() ? 0 : shape.size() - 1;
    Shape at(axes, 0);
    while (true) {
        row(from);
        size_t axis = axes;
        for (; axis-- > 0;) {
            for (size_t i = 0; i < N; ++i) from[i] += strides[i][axis];
            if (++at[axis] < shape[axis]) break;
            for (size_t i = 0; i < N; ++i) from[i] -= strides[i][axis] * shape[axis];
            at[axis] = 0;
        }
        if (axis == static_cast<size_t>(-1)) return;
    }
}

/// Copies units that lie apart to where they lie one after the other.
void copy(std::byte * to, const Shape & shape, const std::byte * from, const std::vector<int64_t> & strides, size_t size) {
    const int64_t length = shape.empty() ? 1 : shape.back(), step = shape.empty() ? 0 : strides.back();
    for_rows<1>(shape, {from}, {strides}, [&](const auto & rows) {
        const std::byte * each = rows[0];
        if (step == static_cast<int64_t>(size)) {
            std::memcpy(to, each, static_cast<size_t>(length) * size);
            to += static_cast<size_t>(length) * size;
        } else {
            for (int64_t i = 0; i < length; ++i, each += step, to += size) std::memcpy(to, each, size);
        }
    });
}

}  // namespace

std::pair<Values, std::byte *> new_values(ggml_type type, Shape shape) {
    constexpr size_t alignment = 64;
    Values values{type, std::move(shape), nullptr, nullptr};
    element_count(values.shape, ggml_type_size(type));
    const std::shared_ptr<void> memory(::operator new(std::max<size_t>(values.nbytes(), 1), std::align_val_t(alignment)),
                                       [](void * bytes) { ::operator delete(bytes, std::align_val_t(alignment)); });
    std::byte * bytes = static_cast<std::byte *>(memory.get());
    values.data = bytes;
    values.keeps = memory;
    return {std::move(values), bytes};
}

Values float32(const Values & values) {
    if (values.type == GGML_TYPE_F32) return values;
    const auto to_float = ggml_get_type_traits(values.type)->to_float;
    if (to_float == nullptr) throw Error(std::string("numbers of type ") + ggml_type_name(values.type) + " are no weights");
    auto [found, bytes] = new_values(GGML_TYPE_F32, values.shape);
    to_float(values.data, reinterpret_cast<float *>(bytes), static_cast<int64_t>(values.count()));
    return found;
}

Values narrowed(const Values & values, ggml_type type) {
    require(values.type == GGML_TYPE_F32);
    if (type == GGML_TYPE_F32) return values;
    const float * from = values.floats();
    const size_t count = values.count();
    const std::string name = ggml_type_name(type);
    auto [found, bytes] = new_values(type, values.shape);
    if (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) {
        const auto convert = [&](auto * to, auto narrow, auto widen) {
            for (size_t i = 0; i < count; ++i) {
                to[i] = narrow(from[i]);
                if (std::isinf(widen(to[i])) && !std::isinf(from[i])) throw Error("a number is larger than any of " + name);
            }
        };
        if (type == GGML_TYPE_F16) {
            convert(reinterpret_cast<ggml_fp16_t *>(bytes), ggml_fp32_to_fp16, ggml_fp16_to_fp32);
        } else {
            convert(reinterpret_cast<ggml_bf16_t *>(bytes), ggml_fp32_to_bf16, ggml_bf16_to_fp32);
        }
        return found;
    }
    const float largest = type == GGML_TYPE_NVFP4 ? 2688.0f : 65504.0f;
    const bool guided = type == GGML_TYPE_IQ2_XXS || type == GGML_TYPE_IQ2_XS || type == GGML_TYPE_IQ1_S;
    if (guided || !ggml_is_quantized(type)) throw Error("ggml does not make " + name + " of float32; take it from a checkpoint that has it");
    const bool fits = std::all_of(from, from + count, [&](float each) { return std::abs(each) <= largest; });
    if (!fits) throw Error("a number that is not finite, or too large, cannot be stored in " + name);
    const int64_t row = values.shape.empty() ? 1 : values.shape.back();
    const std::vector<float> alike(static_cast<size_t>(row), 1.0f);
    if (count != 0) ggml_quantize_chunk(type, from, bytes, 0, static_cast<int64_t>(count) / row, row, alike.data());
    return found;
}

Values reshaped(const Values & x, const Shape & shape) {
    require(element_count(shape, 1) == x.count());
    const bool whole = plain(x.type) || (!shape.empty() && shape.back() % ggml_blck_size(x.type) == 0);
    Values found = whole ? x : float32(x);
    found.shape = shape;
    return found;
}

Values transposed(const Values & x, const std::vector<int64_t> & perm) {
    const size_t rank = x.shape.size();
    std::vector<int64_t> sorted = perm;
    std::sort(sorted.begin(), sorted.end());
    require(perm.size() == rank);
    for (size_t axis = 0; axis < rank; ++axis) require(sorted[axis] == static_cast<int64_t>(axis));
    if (!plain(x.type) && perm.back() != static_cast<int64_t>(rank) - 1) return transposed(float32(x), perm);
    const Units units = units_of(x);
    const std::vector<int64_t> strides = strides_of(units.shape, units.size);
    Shape shape, places;
    std::vector<int64_t> permuted;
    for (int64_t axis : perm) {
        shape.push_back(x.shape[static_cast<size_t>(axis)]);
        places.push_back(units.shape[static_cast<size_t>(axis)]);
        permuted.push_back(strides[static_cast<size_t>(axis)]);
    }
    auto [found, bytes] = new_values(x.type, shape);
    copy(bytes, places, x.data, permuted, units.size);
    return found;
}

Values undoubled(const Values & kernels) {
    require(kernels.shape.size() == 4 && kernels.shape[2] == 3 && kernels.shape[3] == 3);
    const Values plain = float32(kernels);
    const size_t count = static_cast<size_t>(kernels.shape[0] * kernels.shape[1]);
    auto [found, bytes] = new_values(GGML_TYPE_F32, {4, kernels.shape[0], kernels.shape[1], 2, 2});
    float * target = reinterpret_cast<float *>(bytes);
    // Of three numbers next to one another, an even place meets the second and the third in one pixel, an odd one the first two.
    const auto met = [](const float * three, size_t step, size_t odd, size_t tap) {
        const size_t both = odd == 0 ? 1 : 0;  // the pixel that two numbers meet
        if (tap == both) return three[both * step] + three[(both + 1) * step];
        return three[2 * tap * step];
    };
    for (size_t phase = 0; phase < 4; ++phase) {
        for (size_t i = 0; i < count; ++i) {
            const float * kernel = plain.floats() + i * 9;
            for (size_t tap = 0; tap < 4; ++tap) {
                float rows[3];  // what the lines become, for each column
                for (size_t x = 0; x < 3; ++x) rows[x] = met(kernel + x, 3, phase / 2, tap / 2);
                *target++ = met(rows, 1, phase % 2, tap % 2);
            }
        }
    }
    return found;
}

Values sliced(const Values & x, const std::vector<int64_t> & starts, const Shape & sizes, const std::vector<int64_t> & steps) {
    const size_t rank = x.shape.size();
    require(starts.size() == rank && sizes.size() == rank && steps.size() == rank);
    for (size_t axis = 0; axis < rank; ++axis) {
        const int64_t size = sizes[axis], start = starts[axis], step = steps[axis], limit = x.shape[axis];
        require(size >= 0 && step != 0 && (size == 0 || (start >= 0 && start < limit)));
        const int64_t room = step > 0 ? limit - 1 - start : start;  // behind the first, in its direction
        require(size <= 1 || (step > -limit && step < limit && room / std::abs(step) >= size - 1));
    }
    const int64_t block = ggml_blck_size(x.type);
    if (block != 1 && (starts.back() % block != 0 || sizes.back() % block != 0 || steps.back() != 1)) {
        return sliced(float32(x), starts, sizes, steps);
    }
    const Units units = units_of(x);
    std::vector<int64_t> strides = strides_of(units.shape, units.size);
    auto [found, bytes] = new_values(x.type, sizes);
    const Shape places = units_of(found).shape;
    if (found.count() == 0) return found;
    const std::byte * from = x.data;
    for (size_t axis = 0; axis < rank; ++axis) {
        from += strides[axis] * (axis + 1 == rank ? starts[axis] / block : starts[axis]);
        strides[axis] *= steps[axis];
    }
    copy(bytes, places, from, strides, units.size);
    return found;
}

Values concatenated(const std::vector<Values> & parts, int64_t axis, size_t most) {
    require(!parts.empty() && axis >= 0 && axis < static_cast<int64_t>(parts[0].shape.size()));
    const size_t place = static_cast<size_t>(axis);
    Shape shape = parts[0].shape;
    shape[place] = 0;
    std::vector<Values> same = parts;
    const bool mixed = std::any_of(parts.begin(), parts.end(), [&](const Values & each) { return each.type != parts[0].type; });
    for (Values & each : same) {
        require(each.shape.size() == shape.size());
        for (size_t i = 0; i < shape.size(); ++i) require(i == place || each.shape[i] == shape[i]);
        shape[place] += each.shape[place];
        if (mixed) each = float32(each);
    }
    require(element_count(shape, 1) <= most);
    auto [found, bytes] = new_values(same[0].type, shape);
    size_t rows = 1;
    for (size_t i = 0; i < place; ++i) rows *= static_cast<size_t>(shape[i]);
    for (size_t row = 0; row < rows; ++row) {
        for (const Values & each : same) {
            const size_t length = each.nbytes() / rows;
            std::memcpy(bytes, each.data + row * length, length);
            bytes += length;
        }
    }
    return found;
}

Values rows_of(const Values & x, const Values & indices, int64_t axis, size_t most) {
    require(axis >= 0 && axis < static_cast<int64_t>(x.shape.size()));
    require(indices.type == GGML_TYPE_I64 || indices.type == GGML_TYPE_I32);
    const size_t place = static_cast<size_t>(axis);
    if (!plain(x.type) && place + 1 == x.shape.size()) return rows_of(float32(x), indices, axis, most);
    Shape shape(x.shape.begin(), x.shape.begin() + axis);
    shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
    shape.insert(shape.end(), x.shape.begin() + axis + 1, x.shape.end());
    require(element_count(shape, 1) <= most);
    const Units units = units_of(x);
    size_t outer = 1, inner = units.size;
    for (size_t i = 0; i < units.shape.size(); ++i) (i < place ? outer : inner) *= i == place ? 1 : static_cast<size_t>(units.shape[i]);
    auto [found, bytes] = new_values(x.type, shape);
    const int64_t limit = x.shape[place];
    for (size_t row = 0; row < outer; ++row) {
        for (size_t i = 0; i < indices.count(); ++i) {
            int64_t index = 0;
            if (indices.type == GGML_TYPE_I64) {
                std::memcpy(&index, indices.data + i * sizeof index, sizeof index);
            } else {
                int32_t narrow = 0;
                std::memcpy(&narrow, indices.data + i * sizeof narrow, sizeof narrow);
                index = narrow;
            }
            require(index >= -limit && index < limit);
            if (index < 0) index += limit;
            std::memcpy(bytes, x.data + (row * static_cast<size_t>(limit) + static_cast<size_t>(index)) * inner, inner);
            bytes += inner;
        }
    }
    return found;
}

Values unary(const Values & x, float (*function)(float)) {
    const Values from = float32(x);
    auto [found, bytes] = new_values(GGML_TYPE_F32, x.shape);
    std::transform(from.floats(), from.floats() + x.count(), reinterpret_cast<float *>(bytes), function);
    return found;
}

Values binary(const Values & a, const Values & b, float (*function)(float, float), size_t most) {
    const std::array<Values, 2> given = {float32(a), float32(b)};
    Shape shape(std::max(a.shape.size(), b.shape.size()), 1);
    for (const Values & each : given) {
        const size_t lead = shape.size() - each.shape.size();
        for (size_t i = 0; i < each.shape.size(); ++i) {
            int64_t & size = shape[lead + i];
            require(size == 1 || each.shape[i] == 1 || size == each.shape[i]);
            if (size == 1) size = each.shape[i];
        }
    }
    require(element_count(shape, 1) <= most);
    std::array<std::vector<int64_t>, 2> strides;
    for (size_t k = 0; k < 2; ++k) {
        const std::vector<int64_t> own = strides_of(given[k].shape, sizeof(float));
        strides[k].assign(shape.size() - own.size(), 0);
        for (size_t i = 0; i < own.size(); ++i) strides[k].push_back(given[k].shape[i] == 1 ? 0 : own[i]);
    }
    auto [found, bytes] = new_values(GGML_TYPE_F32, shape);
    float * to = reinterpret_cast<float *>(bytes);
    const int64_t length = shape.empty() ? 1 : shape.back();
    const auto step = [&](size_t k) { return shape.empty() ? 0 : strides[k].back() / static_cast<int64_t>(sizeof(float)); };
    const int64_t first = step(0), second = step(1);
    for_rows<2>(shape, {given[0].data, given[1].data}, strides, [&](const auto & rows) {
        const float * x = reinterpret_cast<const float *>(rows[0]);
        const float * y = reinterpret_cast<const float *>(rows[1]);
        for (int64_t i = 0; i < length; ++i) *to++ = function(x[i * first], y[i * second]);
    });
    return found;
}

}  // namespace graphc
