// Matrices of a warp: loads from shared memory, and products on tensor cores.
#pragma once

#define GRAPHC_LOAD_MATRIX(name, count, how, registers, ...)                                                                        \
    DEVICE void name(unsigned *r, const shared_byte *row) {                                                                         \
        asm volatile("ldmatrix.sync.aligned.m8n8." count how ".shared.b16 {" registers "}, [%" __VA_ARGS__                          \
                     : "r"(graphc_shared_address(row)) : "memory");                                                                 \
    }
GRAPHC_LOAD_MATRIX(load_matrix_x1, "x1", "", "%0", "1];" : "=r"(r[0]))
GRAPHC_LOAD_MATRIX(load_matrix_x2, "x2", "", "%0, %1", "2];" : "=r"(r[0]), "=r"(r[1]))
GRAPHC_LOAD_MATRIX(load_matrix_x4, "x4", "", "%0, %1, %2, %3", "4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
GRAPHC_LOAD_MATRIX(load_matrix_transposed_x1, "x1", ".trans", "%0", "1];" : "=r"(r[0]))
GRAPHC_LOAD_MATRIX(load_matrix_transposed_x2, "x2", ".trans", "%0, %1", "2];" : "=r"(r[0]), "=r"(r[1]))
GRAPHC_LOAD_MATRIX(load_matrix_transposed_x4, "x4", ".trans", "%0, %1, %2, %3", "4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
#undef GRAPHC_LOAD_MATRIX

// How many registers an operand has, as it stands in an instruction's text.
#define GRAPHC_FOUR_FLOATS(c) "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define GRAPHC_FOUR_INTS(c) "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
#define GRAPHC_TWO_WORDS(c) "+r"(c[0]), "+r"(c[1])
#define GRAPHC_MMA_4_2(instruction, c, a, b) /* four registers of sums, four and two of factors */                                   \
    asm volatile("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
                 : c : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define GRAPHC_MMA_2_1(instruction, c, a, b)                                                                                         \
    asm volatile("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                             \
                 : c : "r"(a[0]), "r"(a[1]), "r"(b[0]))

DEVICE void mma_m16n8k8_half(float *c, const unsigned *a, const unsigned *b) {
    GRAPHC_MMA_2_1("m16n8k8.row.col.f32.f16.f16.f32", GRAPHC_FOUR_FLOATS(c), a, b);
}

#if GRAPHC_ARCHITECTURE >= 80
DEVICE void mma_m16n8k16_half(float *c, const unsigned *a, const unsigned *b) {
    GRAPHC_MMA_4_2("m16n8k16.row.col.f32.f16.f16.f32", GRAPHC_FOUR_FLOATS(c), a, b);
}
DEVICE void mma_m16n8k16_half_half(unsigned *c, const unsigned *a, const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : GRAPHC_TWO_WORDS(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma_m16n8k16_bfloat16(float *c, const unsigned *a, const unsigned *b) {
    GRAPHC_MMA_4_2("m16n8k16.row.col.f32.bf16.bf16.f32", GRAPHC_FOUR_FLOATS(c), a, b);
}
DEVICE void mma_m16n8k8_tf32(float *c, const unsigned *a, const unsigned *b) {
    GRAPHC_MMA_4_2("m16n8k8.row.col.f32.tf32.tf32.f32", GRAPHC_FOUR_FLOATS(c), a, b);
}
DEVICE void mma_m16n8k32_int8(int *c, const unsigned *a, const unsigned *b) {
    GRAPHC_MMA_4_2("m16n8k32.row.col.s32.s8.s8.s32", GRAPHC_FOUR_INTS(c), a, b);
}
#else
// The halves of the depth, one after the other.
DEVICE void mma_m16n8k16_half(float *c, const unsigned *a, const unsigned *b) {
    mma_m16n8k8_half(c, a, b);
    mma_m16n8k8_half(c, a + 2, b + 1);
}
DEVICE void mma_m16n8k16_half_half(unsigned *c, const unsigned *a, const unsigned *b) {
    for (int half = 0; half < 2; half++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                     : GRAPHC_TWO_WORDS(c) : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
}
// Both halves of the depth and of the rows.
DEVICE void mma_m16n8k32_int8(int *c, const unsigned *a, const unsigned *b) {
    for (int part = 0; part < 4; part++)
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+r"(c[part % 2 * 2]), "+r"(c[part % 2 * 2 + 1]) : "r"(a[part]), "r"(b[part / 2]));
}
#endif
