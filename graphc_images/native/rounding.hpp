// Each product and each sum is rounded by itself, so that results are the same bits on every processor: between
// GRAPHC_ROUNDED and GRAPHC_ROUNDED_END a compiler may not fuse them (FMA), whatever it was told with -ffp-contract.
#ifndef GRAPHC_IMAGES_ROUNDING_HPP
#define GRAPHC_IMAGES_ROUNDING_HPP

#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
#error "graphc's numbers need exact arithmetic: compile without -ffast-math (/fp:fast)"
#endif

#if defined(__clang__)
#define GRAPHC_ROUNDED _Pragma("float_control(push)") _Pragma("clang fp contract(off)")
#define GRAPHC_ROUNDED_END _Pragma("float_control(pop)")
#elif defined(__GNUC__)
#define GRAPHC_ROUNDED _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off\")")
#define GRAPHC_ROUNDED_END _Pragma("GCC pop_options")
#elif defined(_MSC_VER)
#define GRAPHC_ROUNDED __pragma(float_control(push)) __pragma(fp_contract(off))
#define GRAPHC_ROUNDED_END __pragma(float_control(pop))
#else
#define GRAPHC_ROUNDED _Pragma("STDC FP_CONTRACT OFF")
#define GRAPHC_ROUNDED_END
#endif

#endif
