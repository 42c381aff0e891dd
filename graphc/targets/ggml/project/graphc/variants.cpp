#include "graphc/variants.h"

#include "graphc/error.h"

#include <cstdlib>
#include <string>

#ifdef GRAPHC_X86_64_VARIANTS
#include <cpuid.h>
#endif

extern "C" const graphc_functions graphc_single, graphc_x86_64_v2, graphc_x86_64_v3, graphc_x86_64_v4,
    graphc_x86_64_v4_bf16;

namespace graphc {

namespace {

#ifdef GRAPHC_X86_64_VARIANTS

/// The registers that the system keeps for a program, as bits of XCR0.
enum : unsigned { ymm = 0x06, zmm = 0xe6 };

/// True if the processor has all of these features, which are bits of the registers c of leaf 1 and b of leaf 7 of `cpuid`, and
/// the system keeps these registers.
bool has(unsigned c1, unsigned b7 = 0, unsigned registers = 0) {
    unsigned a, b, c, d, kept = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & c1) != c1) return false;
    if ((c & bit_OSXSAVE) != 0) __asm__("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
    if ((kept & registers) != registers) return false;
    return b7 == 0 || (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & b7) == b7);
}

bool has_v2() { return has(bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT); }

bool has_v3() { return has_v2() && has(bit_AVX | bit_FMA | bit_F16C, bit_AVX2, ymm); }

bool has_v4() { return has_v3() && has(0, bit_AVX512F | bit_AVX512CD | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL, zmm); }

#ifdef GRAPHC_X86_64_V4_BF16

/// A bit of the register a of leaf 7 of `cpuid`, second part.
enum : unsigned { avx512_bf16 = 1u << 5 };

bool has_v4_bf16() {
    unsigned a, b, c, d;
    return has_v4() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & avx512_bf16) != 0;
}

#endif

#else

bool always() { return true; }

#endif

struct Choice {
    Variant variant;
    bool (*runs)();  // on this processor, with all instructions that project.cmake lets the compiler use
};

/// The best first.
const Choice choices[] = {
#if defined(GRAPHC_X86_64_VARIANTS)
#if defined(GRAPHC_X86_64_V4_BF16)
    {{"x86-64-v4-bf16", &graphc_x86_64_v4_bf16}, has_v4_bf16},
#endif
    {{"x86-64-v4", &graphc_x86_64_v4}, has_v4},
    {{"x86-64-v3", &graphc_x86_64_v3}, has_v3},
    {{"x86-64-v2", &graphc_x86_64_v2}, has_v2},
#elif defined(_MSC_VER)
    {{"single", nullptr}, always},
#else
    {{"single", &graphc_single}, always},
#endif
};

const Variant & choose() {
    const char * wanted = std::getenv("GRAPHC_CPU_VARIANT");
    std::string known;
    for (const Choice & each : choices) {
        if (!each.runs()) continue;
        if (wanted == nullptr || *wanted == '\0' || each.variant.name == std::string(wanted)) return each.variant;
        known += (known.empty() ? "" : ", ") + std::string(each.variant.name);
    }
    if (known.empty()) throw Error("this program needs a newer processor: x86-64-v2, which has SSE4.2");
    throw Error("GRAPHC_CPU_VARIANT is '" + std::string(wanted) + "'; this program has for this processor " + known);
}

}  // namespace

const Variant & cpu_variant() {
    static const Variant & chosen = choose();
    return chosen;
}

}  // namespace graphc
