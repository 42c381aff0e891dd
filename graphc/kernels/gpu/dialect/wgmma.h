// Products of four warps, whose operands lie in shared memory: Hopper's wgmma. They go on while threads do something else.
#pragma once

// What threads wrote to shared memory until here, wgmma sees behind the next barrier.
DEVICE void wgmma_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Where an operand lies: rows of 128 bytes, 8 of them a multiple of 1,024 bytes, in which chunk c of row r is at c ^ r % 8.
DEVICE uint64_t wgmma_operand(const shared_byte *start) { return graphc_wgmma_operand(graphc_shared_address(start), 16); }

// The same for one that has a row for each place of the depth, of panels of 64 columns with so many bytes from one to the next.
DEVICE uint64_t wgmma_columns(const shared_byte *start, unsigned panel) { return graphc_wgmma_operand(graphc_shared_address(start), panel); }

DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int groups> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory"); }

// Behind a wait: keeps a compiler from using sums before it.
template <int count> DEVICE void wgmma_arrived(float *c) {
    UNROLL for (int i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}

// Registers by tens, as they stand in an instruction's text, and as its operands.
#define GRAPHC_TEXT_2(t) "%" t "0, %" t "1"
#define GRAPHC_TEXT_4(t) GRAPHC_TEXT_2(t) ", %" t "2, %" t "3"
#define GRAPHC_TEXT_6(t) GRAPHC_TEXT_4(t) ", %" t "4, %" t "5"
#define GRAPHC_TEXT_8(t) GRAPHC_TEXT_6(t) ", %" t "6, %" t "7"
#define GRAPHC_TEXT_10(t) GRAPHC_TEXT_8(t) ", %" t "8, %" t "9"
#define GRAPHC_TEXT_16 GRAPHC_TEXT_10("") ", " GRAPHC_TEXT_6("1")
#define GRAPHC_TEXT_20 GRAPHC_TEXT_10("") ", " GRAPHC_TEXT_10("1")
#define GRAPHC_TEXT_30 GRAPHC_TEXT_10("") ", " GRAPHC_TEXT_10("1") ", " GRAPHC_TEXT_10("2")
#define GRAPHC_TEXT_32 GRAPHC_TEXT_30 ", " GRAPHC_TEXT_2("3")
#define GRAPHC_TEXT_40 GRAPHC_TEXT_30 ", " GRAPHC_TEXT_10("3")
#define GRAPHC_TEXT_48 GRAPHC_TEXT_30 ", " GRAPHC_TEXT_10("3") ", " GRAPHC_TEXT_8("4")
#define GRAPHC_TEXT_60 GRAPHC_TEXT_30 ", " GRAPHC_TEXT_10("3") ", " GRAPHC_TEXT_10("4") ", " GRAPHC_TEXT_10("5")
#define GRAPHC_TEXT_64 GRAPHC_TEXT_60 ", " GRAPHC_TEXT_4("6")
#define GRAPHC_TEXT_80 GRAPHC_TEXT_60 ", " GRAPHC_TEXT_10("6") ", " GRAPHC_TEXT_10("7")
#define GRAPHC_TEXT_96 GRAPHC_TEXT_80 ", " GRAPHC_TEXT_10("8") ", " GRAPHC_TEXT_6("9")
#define GRAPHC_TEXT_120 GRAPHC_TEXT_80 ", " GRAPHC_TEXT_10("8") ", " GRAPHC_TEXT_10("9") ", " GRAPHC_TEXT_10("10") ", " GRAPHC_TEXT_10("11")
#define GRAPHC_TEXT_128 GRAPHC_TEXT_120 ", " GRAPHC_TEXT_8("12")
#define GRAPHC_SUMS_4(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define GRAPHC_SUMS_16(c) GRAPHC_SUMS_4(c), GRAPHC_SUMS_4((c) + 4), GRAPHC_SUMS_4((c) + 8), GRAPHC_SUMS_4((c) + 12)
#define GRAPHC_SUMS_20(c) GRAPHC_SUMS_16(c), GRAPHC_SUMS_4((c) + 16)
#define GRAPHC_SUMS_32(c) GRAPHC_SUMS_16(c), GRAPHC_SUMS_16((c) + 16)
#define GRAPHC_SUMS_40(c) GRAPHC_SUMS_20(c), GRAPHC_SUMS_20((c) + 20)
#define GRAPHC_SUMS_48(c) GRAPHC_SUMS_32(c), GRAPHC_SUMS_16((c) + 32)
#define GRAPHC_SUMS_64(c) GRAPHC_SUMS_32(c), GRAPHC_SUMS_32((c) + 32)
#define GRAPHC_SUMS_80(c) GRAPHC_SUMS_64(c), GRAPHC_SUMS_16((c) + 64)
#define GRAPHC_SUMS_96(c) GRAPHC_SUMS_64(c), GRAPHC_SUMS_32((c) + 64)
#define GRAPHC_SUMS_128(c) GRAPHC_SUMS_64(c), GRAPHC_SUMS_64((c) + 64)

// n0 to n5 are the numbers of operands behind the sums. `adds` must be known when the kernel is compiled.
#define GRAPHC_WGMMA_OF(columns, count, n0, n1, n2, n3, n4, n5, name, types)                                                     \
    DEVICE void wgmma_m64n##columns##k16_##name(float *c, uint64_t a, uint64_t b, bool adds) {                                   \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" n2 ", 0; "                                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32" types " {" GRAPHC_TEXT_##count "}, "                 \
                     "%" n0 ", %" n1 ", p, 1, 1, 0, 0; }"                                                                        \
                     : GRAPHC_SUMS_##count(c) : "l"(a), "l"(b), "r"((int) adds) : "memory");                                     \
    }                                                                                                                            \
    DEVICE void wgmma_m64n##columns##k16_##name##_columns(float *c, const unsigned *a, uint64_t b, bool adds) {                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" n5 ", 0; "                                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32" types " {" GRAPHC_TEXT_##count "}, "                 \
                     "{%" n0 ", %" n1 ", %" n2 ", %" n3 "}, %" n4 ", p, 1, 1, 1; }"                                              \
                     : GRAPHC_SUMS_##count(c)                                                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int) adds) : "memory");                          \
    }
#define GRAPHC_WGMMA(columns, count, n0, n1, n2, n3, n4, n5)                                                                     \
    GRAPHC_WGMMA_OF(columns, count, n0, n1, n2, n3, n4, n5, half, ".f16.f16")                                                    \
    GRAPHC_WGMMA_OF(columns, count, n0, n1, n2, n3, n4, n5, bfloat16, ".bf16.bf16")
GRAPHC_WGMMA(32, 16, "16", "17", "18", "19", "20", "21")
GRAPHC_WGMMA(40, 20, "20", "21", "22", "23", "24", "25")
GRAPHC_WGMMA(64, 32, "32", "33", "34", "35", "36", "37")
GRAPHC_WGMMA(80, 40, "40", "41", "42", "43", "44", "45")
GRAPHC_WGMMA(96, 48, "48", "49", "50", "51", "52", "53")
GRAPHC_WGMMA(128, 64, "64", "65", "66", "67", "68", "69")
GRAPHC_WGMMA(160, 80, "80", "81", "82", "83", "84", "85")
GRAPHC_WGMMA(192, 96, "96", "97", "98", "99", "100", "101")
GRAPHC_WGMMA(256, 128, "128", "129", "130", "131", "132", "133")
#undef GRAPHC_WGMMA
#undef GRAPHC_WGMMA_OF
