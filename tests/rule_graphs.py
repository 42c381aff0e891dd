"""For each rule a graph on which it fires, and for those that may refuse one on which it does."""

FIRES = {
    "attention": """graph g(%q: float32[2, 3, 5, 4], %k: float32[2, 3, 7, 4], %v: float32[2, 3, 7, 6])
        %root: float32[] = constant(0.7071)
        %mask: float32[1, 1, 5, 7] = constant
        %a = Mul(%q, %root)
        %t = Transpose[perm=(0, 1, 3, 2)](%k)
        %b = Mul(%root, %t)
        %m = MatMul(%a, %b)
        %x = Add(%mask, %m)
        %s = Softmax[axis=3](%x)
        %y = MatMul(%s, %v)
        return y=%y""",
    "same": """graph g(%x: float32[2, 3])
        %y = Reshape[shape=(2, 3)](%x)
        %z = Relu(%y)
        return z=%z""",
    "transpose_in_order": """graph g(%x: float32[1, 3, 4])
        %y = Transpose[perm=(1, 0, 2)](%x)
        return y=%y""",
    "reshape_of_reshape": """graph g(%x: float32[2, 6])
        %y = Reshape[shape=(3, 4)](%x)
        %z = Reshape[shape=(12,)](%y)
        return z=%z""",
    "transpose_of_transpose": """graph g(%x: float32[2, 3, 4])
        %y = Transpose[perm=(2, 0, 1)](%x)
        %z = Transpose[perm=(2, 1, 0)](%y)
        return z=%z""",
    "matmul_of_transposed": """graph g(%x: float32[5, 2, 3], %w: float32[5, 4, 3])
        %t = Transpose[perm=(0, 2, 1)](%w)
        %y = MatMul(%x, %t)
        return y=%y""",
    "matmul_of_weight": """graph g(%x: float32[5, 2, 3])
        %w: float32[3, 4] = constant
        %y = MatMul(%x, %w)
        return y=%y""",
    "matmul_of_expanded": """graph g(%x: float32[2, 3], %w: float32[5, 3, 4])
        %e = Expand[shape=(5, 2, 3)](%x)
        %y = MatMul(%e, %w)
        return y=%y""",
    "silu": """graph g(%x: float32[2, 3])
        %s = Sigmoid(%x)
        %y = Mul(%s, %x)
        return y=%y""",
    "gelu": """graph g(%x: float32[2, 3])
        %root: float32[] = constant(1.4142135381698608)
        %one: float32[] = constant(1.0)
        %half: float32[] = constant(0.5)
        %d = Div(%x, %root)
        %e = Erf(%d)
        %a = Add(%e, %one)
        %m = Mul(%x, %a)
        %y = Mul(%m, %half)
        return y=%y""",
    "softmax_guard": """graph g(%x: float32[2, 3, 3])
        %zero: float32[] = constant(0.0)
        %mask: float32[3, 3] = constant
        %a = Add(%x, %mask)
        %s = Softmax[axis=2](%a)
        %n = IsNaN(%s)
        %y = Where(%n, %zero, %s)
        return y=%y""",
    "group_norm": """graph g(%x: float32[2, 8, 3, 3])
        %one: float32[4] = constant(1.0)
        %zero: float32[4] = constant(0.0)
        %r = Reshape[shape=(2, 4, 18)](%x)
        %n = InstanceNorm[epsilon=1e-05](%r, %one, %zero)
        %y = Reshape[shape=(2, 8, 3, 3)](%n)
        return y=%y""",
    "group_norm_scale": """graph g(%x: float32[2, 8, 3, 3])
        %one: float32[8] = constant(1.0)
        %zero: float32[8] = constant(0.0)
        %scale: float32[8, 1, 1] = constant
        %n = GroupNorm[groups=4, epsilon=1e-05](%x, %one, %zero)
        %y = Mul(%n, %scale)
        return y=%y""",
    "group_norm_bias": """graph g(%x: float32[2, 8, 3, 3])
        %scale: float32[8] = constant
        %zero: float32[8] = constant(0.0)
        %bias: float32[8, 1, 1] = constant
        %n = GroupNorm[groups=4, epsilon=1e-05](%x, %scale, %zero)
        %y = Add(%n, %bias)
        return y=%y""",
    "transpose_between_reshapes": """graph g(%x: float32[1, 4, 5, 6])
        %a = Reshape[shape=(4, 5, 6)](%x)
        %b = Transpose[perm=(0, 2, 1)](%a)
        %y = Reshape[shape=(1, 4, 6, 5)](%b)
        return y=%y""",
    "reshape_between_transposes": """graph g(%x: float32[2, 5, 6])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %b = Reshape[shape=(2, 1, 2, 3, 5)](%a)
        %y = Transpose[perm=(0, 1, 4, 2, 3)](%b)
        return y=%y""",
    "reshape_of_slice": """graph g(%x: float32[2, 3, 24])
        %n = Neg(%x)
        %s = Slice[starts=(0, 0, 8), sizes=(2, 3, 8), steps=(1, 1, 1)](%n)
        %y = Reshape[shape=(2, 3, 2, 4)](%s)
        return y=%y""",
    "slice_of_slice": """graph g(%x: float32[20, 6])
        %a = Slice[starts=(2, 0), sizes=(6, 5), steps=(3, 1)](%x)
        %y = Slice[starts=(1, 2), sizes=(2, 3), steps=(2, 1)](%a)
        return y=%y""",
    "slice_of_concat": """graph g(%x: float32[2, 3], %z: float32[2, 5])
        %c = Concat[axis=1](%x, %z)
        %y = Slice[starts=(0, 4), sizes=(2, 2), steps=(1, 2)](%c)
        return y=%y""",
    "binary_of_transposed": """graph g(%x: float32[2, 3, 4], %z: float32[2, 3, 4])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %b = Transpose[perm=(0, 2, 1)](%z)
        %y = Add(%a, %b)
        return y=%y""",
    "binary_between_transposes": """graph g(%x: float32[2, 3, 4], %z: float32[2, 4, 3])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %s = Mul(%z, %a)
        %y = Transpose[perm=(0, 2, 1)](%s)
        return y=%y""",
}

REFUSES = {
    "attention": """graph g(%x: float32[2, 3, 5, 7], %v: float32[2, 3, 7, 6])
        %s = Softmax[axis=3](%x)
        %y = MatMul(%s, %v)
        return y=%y""",
    "same": """graph g(%x: float32[2, 3])
        %y = Reshape[shape=(3, 2)](%x)
        return y=%y""",
    "transpose_in_order": """graph g(%x: float32[2, 3, 4])
        %y = Transpose[perm=(1, 0, 2)](%x)
        return y=%y""",
    "matmul_of_transposed": """graph g(%x: float32[5, 2, 3], %w: float32[3, 5, 4])
        %t = Transpose[perm=(1, 0, 2)](%w)
        %y = MatMul(%x, %t)
        return y=%y""",
    "matmul_of_weight": """graph g(%x: float32[5, 2, 3], %w: float32[3, 4])
        %y = MatMul(%x, %w)
        return y=%y""",
    "matmul_of_expanded": """graph g(%x: float32[2, 3], %w: float32[3, 4])
        %e = Expand[shape=(5, 2, 3)](%x)
        %y = MatMul(%e, %w)
        return y=%y""",
    "softmax_guard": """graph g(%x: float32[2, 3, 3], %m: float32[3, 3])
        %zero: float32[] = constant(0.0)
        %a = Add(%x, %m)
        %s = Softmax[axis=2](%a)
        %n = IsNaN(%s)
        %y = Where(%n, %zero, %s)
        return y=%y""",
    "group_norm": """graph g(%x: float32[2, 8, 3, 3])
        %scale: float32[4] = constant(2.0)
        %zero: float32[4] = constant(0.0)
        %r = Reshape[shape=(2, 4, 18)](%x)
        %n = InstanceNorm[epsilon=1e-05](%r, %scale, %zero)
        %y = Reshape[shape=(2, 8, 3, 3)](%n)
        return y=%y""",
    "group_norm_scale": """graph g(%x: float32[2, 8, 3, 3])
        %one: float32[8] = constant(1.0)
        %zero: float32[8] = constant(0.0)
        %scale: float32[3] = constant
        %n = GroupNorm[groups=4, epsilon=1e-05](%x, %one, %zero)
        %y = Mul(%n, %scale)
        return y=%y""",
    "group_norm_bias": """graph g(%x: float32[2, 8, 3, 3])
        %scale: float32[8] = constant
        %taken: float32[8] = constant
        %bias: float32[8, 1, 1] = constant
        %n = GroupNorm[groups=4, epsilon=1e-05](%x, %scale, %taken)
        %y = Add(%n, %bias)
        return y=%y""",
    "transpose_between_reshapes": """graph g(%x: float32[4, 30])
        %a = Reshape[shape=(4, 5, 6)](%x)
        %b = Transpose[perm=(0, 2, 1)](%a)
        %y = Reshape[shape=(4, 30)](%b)
        return y=%y""",
    "reshape_between_transposes": """graph g(%x: float32[2, 5, 6])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %b = Reshape[shape=(2, 30)](%a)
        %y = Transpose[perm=(1, 0)](%b)
        return y=%y""",
    "reshape_of_slice": """graph g(%x: float32[2, 3, 24])
        %n = Neg(%x)
        %s = Slice[starts=(0, 0, 6), sizes=(2, 3, 8), steps=(1, 1, 1)](%n)
        %y = Reshape[shape=(2, 3, 2, 4)](%s)
        return y=%y""",
    "slice_of_concat": """graph g(%x: float32[2, 3], %z: float32[2, 5])
        %c = Concat[axis=1](%x, %z)
        %y = Slice[starts=(0, 2), sizes=(2, 2), steps=(1, 1)](%c)
        return y=%y""",
    "binary_of_transposed": """graph g(%x: float32[2, 3, 3], %z: float32[3, 2, 3])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %b = Transpose[perm=(1, 2, 0)](%z)
        %y = Add(%a, %b)
        return y=%y""",
    "binary_between_transposes": """graph g(%x: float32[2, 3, 4], %z: float32[2, 4, 3])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %s = Mul(%z, %a)
        %y = Transpose[perm=(0, 2, 1)](%s)
        return y=%y, s=%s""",
}
