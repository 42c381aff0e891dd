#include "graphc/variants.h"

#include "graphc/error.h"

#include <cstdlib>
#include <string>

#ifdef GRAPHC_X86_64_VARIANTS
#include <cpuid.h>
#endif

extern "C" const graphc_functions graphc_single, graphc_x86_64, graphc_x86_64_v3, graphc_x86_64_v4;

namespace graphc {

namespace {

#ifdef GRAPHC_X86_64_VARIANTS

/// The registers that the system keeps for a program, as bits of XCR0.
enum : unsigned { ymm = 0x06, zmm = 0xe6 };

/// Whether the processor has all of these features, which are bits of the registers c of leaf 1 and b of leaf 7 of `cpuid`, and
/// the system keeps these registers.
bool has(unsigned c1, unsigned b7, unsigned registers) {
    unsigned a, b, c, d, kept;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (c1 | bit_OSXSAVE)) != (c1 | bit_OSXSAVE)) return false;
    __asm__("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
    return (kept & registers) == registers && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & b7) == b7;
}

bool has_v3() { return has(bit_AVX | bit_FMA | bit_F16C, bit_AVX2, ymm); }

bool has_v4() { return has_v3() && has(0, bit_AVX512F | bit_AVX512CD | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL, zmm); }

#endif

bool always() { return true; }

struct Choice {
    Variant variant;
    bool (*runs)();  // on this processor, with all instructions that project.cmake lets the compiler use
};

/// The best first.
const Choice choices[] = {
#if defined(GRAPHC_X86_64_VARIANTS)
    {{"x86-64-v4", &graphc_x86_64_v4}, has_v4},
    {{"x86-64-v3", &graphc_x86_64_v3}, has_v3},
    {{"x86-64", &graphc_x86_64}, always},
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
    throw Error("GRAPHC_CPU_VARIANT is '" + std::string(wanted) + "'; this program has for this processor " + known);
}

}  // namespace

const Variant & cpu_variant() {
    static const Variant & chosen = choose();
    return chosen;
}

}  // namespace graphc
