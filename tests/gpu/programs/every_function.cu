// Calls every function of the dialect, for toolchains to compile: the numbers mean nothing.

DEVICE float twice(float x) { return 2 * x; }

KERNEL(every_function, 64, 1, const float *x, float *y, half_t *h, bfloat16_t *b, unsigned *u, int8_t *bytes, double *d, int64_t *l, int n, Divisor by) {
    const int i = divide(block_index_x() * 64 + thread_index(), by) + remainder(n, by) + block_index_y() + block_index_z();
    const int last = grid_size_x() + grid_size_y() + grid_size_z() + warp_index();
    float v = twice(load_global(x + i));

    // Global memory
    float four[4], two[2], one[1];
    half_t halves[8], half[1];
    int8_t byte[1];
    load_global_1(byte, bytes + i), load_global_2(half, h + i), load_global_4(one, x + i), load_global_8(two, x + 2 * i), load_global_16(four, x + 4 * i);
    store_global_1(bytes, byte), store_global_2(h, half), store_global_4(y, one), store_global_8(y, two), store_global_16(y, four);
    load_readonly_1(byte, bytes + last), load_readonly_2(half, h + last), load_readonly_4(one, x + last), load_readonly_8(two, x + 2 * last), load_readonly_16(halves, h + 8 * last);
    store_streaming_1(bytes + i, byte), store_streaming_2(h + i, half), store_streaming_4(y + i, one), store_streaming_8(y + 2 * i, two), store_streaming_16(h + 8 * i, halves);
    load_streaming_1(byte, bytes + n), load_streaming_2(half, h + n), load_streaming_4(one, x + n), load_streaming_8(two, x + 2 * n), load_streaming_16(four, x + 4 * n);
    atomic_add_global(y, v);
    await_kernels_before();
    device_fence();
    store_global(l, atomic_add_global(u, 3u));
    discard_global(y + 32 * n);

    // Shared memory
    shared_byte *s = shared_memory() + 64;
    store_shared(s + 4 * i, v), store_shared(s + 2 * i, half[0]);
    store_shared_1(s, byte), store_shared_2(s, half), store_shared_4(s, one), store_shared_8(s, two), store_shared_16(s, four);
    copy_async_16(s, x, i < n), copy_async_8(s, x, i < n), copy_async_4(s, x, i < n);
    copy_commit();
    copy_wait<1>();
    barrier();
    v += load_shared<float>(s + 4 * i) + to_float(load_shared<half_t>(s));
    load_shared_1(byte, s), load_shared_2(half, s), load_shared_4(one, s + 4 * i), load_shared_8(two, s + 8 * i), load_shared_16(four, s + 16 * i);
    warp_barrier();

    // Warps
    v += shuffle_xor(v, 1) + shuffle_down(v, 2) + shuffle_up(v, 3) + shuffle(v, 4) + shuffle_xor(i, 3) + shuffle(7u, lane_index());
    if (vote_any(v > 3) && !vote_all(v > 3)) v += ballot(v > 9);
    unsigned a[4], w[4], half_sums[2] = {1, 2};
    float sums[4] = {v, v, v, v};
    int counts[4] = {i, i, i, i};
    load_matrix_x4(a, s);
    mma_m16n8k16_half(sums, a, a);
    load_matrix_transposed_x4(a, s);
    load_matrix_x2(w, s);
    mma_m16n8k16_half_half(half_sums, a, w);
    load_matrix_transposed_x2(w, s);
    mma_m16n8k32_int8(counts, a, w);
    load_matrix_x1(w, s);
    mma_m16n8k8_half(sums, a, w);
    load_matrix_transposed_x1(w, s);
    mma_m16n8k8_half(sums, a, w);
#ifdef AMPERE
    mma_m16n8k16_bfloat16(sums, a, a);
    mma_m16n8k8_tf32(sums, a, a);
    float numbers[4] = {v, x[i], v, x[i]};
    mma_m16n8k8_float_once(sums, numbers, numbers);
    mma_m16n8k8_float_thrice(sums, numbers, numbers);
    store_global(u + 9, to_tf32(v));
#endif
#ifdef HOPPER
    float many[32] = {v};
    const uint64_t left = wgmma_operand(s), right = wgmma_columns(s + 8192, 8192);
    wgmma_publish();
    barrier();
    wgmma_begin();
    wgmma_m64n64k16_half(many, left, wgmma_operand(s + 8192), true), wgmma_m64n64k16_bfloat16(many, left, left, true);
    wgmma_m64n64k16_half_columns(many, a, right, true), wgmma_m64n64k16_bfloat16_columns(many, a, right, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_arrived<32>(many);
    v += many[0] + many[31];
#endif
    v += sums[0] + half_low(half_sums[0]) + counts[3];

    // Numbers
    store_global(b, to_bfloat16(v)), store_global(h, to_half(v));
    store_global(u, pack_half(v, four[0])), store_global(u + 1, pack_bfloat16(v, four[1]));
    store_global(u + 2, pack(halves[0], halves[1])), store_global(u + 3, pack(to_bfloat16(two[0]), to_bfloat16(two[1])));
    v += half_high(a[1]) + bfloat16_low(a[2]) + bfloat16_high(a[3]) + dot_bytes(1, i, 3) + to_float(to_bfloat16(v)) + float_of(bits_of(v) ^ 1);
    v += fast_exp(v) + fast_exp2(v) + fast_log2(v) + fast_tanh(v) + fast_reciprocal(v) + fast_reciprocal_sqrt(v);
    v += expf(v) + exp2f(v) + expm1f(v) + logf(v) + log2f(v) + log1pf(v) + sinf(v) + cosf(v) + tanf(v) + asinf(v) + acosf(v) + atanf(v);
    v += sinhf(v) + coshf(v) + tanhf(v) + asinhf(v) + acoshf(v) + atanhf(v) + erff(v) + powf(v, two[1]) + fmodf(v, two[0]);
    v += sqrtf(v) + rsqrtf(v) + floorf(v) + ceilf(v) + truncf(v) + rintf(v) + roundf(v) + fabsf(v) + copysignf(v, one[0]) + fmaxf(v, 1) + fminf(v, 2);
    v += fmaf(v, v, v) + maximum(v, one[0]) + minimum(v, two[0]);
    const double e = load_global(d), f = load_global(d + 1);
    store_global(d, sqrt(e) + fabs(f) + floor(e) + ceil(e) + trunc(f) + rint(f) + fma(e, f, e) + copysign(e, f) + fmax(e, 1.0) + fmin(f, 2.0));
    store_global(d + 1, exp(e) + expm1(e) + log(e) + log1p(e) + tanh(e) + sin(e) + cos(e) + tan(e) + atan(e) + asin(e) + acos(e) + sinh(e) + cosh(e) + asinh(e) + acosh(e) + atanh(e) + erf(e) + pow(e, f) + fmod(e, f));
    UNROLL for (int k = 0; k < 2; k++) v += k * two[k];
    NO_UNROLL for (int k = 0; k < n; k++) v = v * v + k;
    store_global(y + i, v);
}
