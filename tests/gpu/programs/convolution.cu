// A 3 x 3 convolution with padding 1, bias and SiLU, channels last: x[N, H, W, C], w[K, 3, 3, C], y[N, H, W, K]; C is a multiple of 32, K of 8.
// A block makes 128 places of 128 channels, 32 input channels of one of the 9 shifts at a time; copies run two steps ahead.

DEVICE int place(int row, int chunk) { return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4); }

KERNEL(convolution, 256, 2, const half_t *x, const half_t *w, const float *bias, half_t *y, int N, int H, int W, int C, int K,
       Divisor by_width, Divisor by_height, Divisor by_chunks) {
    const int stage_bytes = 128 * 64;
    shared_byte *a_stages = shared_memory(), *b_stages = shared_memory() + 3 * stage_bytes;
    const int thread = thread_index(), lane = lane_index(), warp_row = warp_index() / 4, warp_column = warp_index() % 4;
    const int first_place = block_index_x() * 128, first_channel = block_index_y() * 128;
    const int places = N * H * W, steps = 9 * (C / 32);

    // A thread copies the same quarter of the same two rows in every step.
    const int quarter = thread % 4;
    int h[2], v[2];
    const half_t *x_row[2], *w_row[2];
    bool x_valid[2], w_valid[2];
    UNROLL for (int i = 0; i < 2; i++) {
        const int row = thread / 4 + i * 64, at = first_place + row, channel = first_channel + row;
        x_valid[i] = at < places;
        w_valid[i] = channel < K;
        const int line = divide(x_valid[i] ? at : 0, by_width), image = divide(line, by_height);
        v[i] = (x_valid[i] ? at : 0) - line * W - 1;
        h[i] = line - image * H - 1;
        x_row[i] = x + (int64_t) image * H * W * C + quarter * 8;
        w_row[i] = w + (int64_t) (w_valid[i] ? channel : 0) * 9 * C + quarter * 8;
    }

    float sums[4][4][4];
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++) UNROLL for (int e = 0; e < 4; e++) sums[i][j][e] = 0;

    for (int step = -2; step < steps; step++) {
        if (step >= 0) {
            copy_wait<1>();
            barrier();
        }
        const int ahead = step + 2;
        if (ahead < steps) {
            const int shift = divide(ahead, by_chunks), c = (ahead - shift * (C / 32)) * 32, shift_h = shift / 3, shift_v = shift % 3;
            shared_byte *a = a_stages + ahead % 3 * stage_bytes, *b = b_stages + ahead % 3 * stage_bytes;
            UNROLL for (int i = 0; i < 2; i++) {
                const int row = thread / 4 + i * 64, from_h = h[i] + shift_h, from_v = v[i] + shift_v;
                const bool inside = x_valid[i] && (unsigned) from_h < (unsigned) H && (unsigned) from_v < (unsigned) W;
                copy_async_16(a + place(row, quarter), x_row[i] + ((int64_t) from_h * W + from_v) * C + c, inside);
                copy_async_16(b + place(row, quarter), w_row[i] + shift * C + c, w_valid[i]);
            }
        }
        copy_commit();
        if (step < 0) continue;

        const shared_byte *a = a_stages + step % 3 * stage_bytes, *b = b_stages + step % 3 * stage_bytes;
        UNROLL for (int k = 0; k < 2; k++) {
            unsigned fa[4][4], fb[2][4];
            UNROLL for (int i = 0; i < 4; i++) load_matrix_x4(fa[i], a + place(warp_row * 64 + i * 16 + lane % 16, k * 2 + lane / 16));
            UNROLL for (int j = 0; j < 2; j++) load_matrix_x4(fb[j], b + place(warp_column * 32 + j * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
            UNROLL for (int i = 0; i < 4; i++)
                UNROLL for (int j = 0; j < 4; j++) mma_m16n8k16_half(sums[i][j], fa[i], &fb[j / 2][j % 2 * 2]);
        }
    }

    // Out through shared memory, which is free again: rows of 128 channels, 16 bytes a thread.
    barrier();
    shared_byte *out = shared_memory();
    float biases[4][2];
    UNROLL for (int j = 0; j < 4; j++)
        UNROLL for (int e = 0; e < 2; e++) {
            const int n = first_channel + warp_column * 32 + j * 8 + lane % 4 * 2 + e;
            biases[j][e] = n < K ? load_global(bias + n) : 0;
        }
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int j = 0; j < 4; j++)
            UNROLL for (int half = 0; half < 2; half++) {
                const int row = warp_row * 64 + i * 16 + lane / 4 + half * 8, column = warp_column * 32 + j * 8 + lane % 4 * 2;
                const float a = sums[i][j][half * 2] + biases[j][0], b = sums[i][j][half * 2 + 1] + biases[j][1];
                store_shared(out + row * 256 + ((column / 8 ^ row % 8) << 4) + column % 8 * 2, pack_half(a / (1 + fast_exp(-a)), b / (1 + fast_exp(-b))));
            }
    barrier();
    UNROLL for (int i = 0; i < 8; i++) {
        const int row = thread / 16 + i * 16, chunk = thread % 16, at = first_place + row, n = first_channel + chunk * 8;
        unsigned packed[4];
        if (at < places && n < K) {
            load_shared_16(packed, out + row * 256 + ((chunk ^ row % 8) << 4));
            store_global_16(y + (int64_t) at * K + n, packed);
        }
    }
}
