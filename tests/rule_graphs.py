"""For each rule a graph on which it fires, and for those that may refuse one on which it does."""

MASKS = "%m: float32[1, 3, 5, 7], %n: float32[1, 2, 1, 5, 7]"
FOUR = "%q: float32[2, 3, 5, 4], %k: float32[2, 3, 7, 4], %v: float32[2, 3, 7, 6]"
"""Queries, keys and values with batch and heads apart."""

THREE = "%q: float32[6, 5, 4], %k: float32[6, 7, 4], %v: float32[6, 7, 4]"
"""The same with both as one."""

CONV = "strides=(1, 1), dilations=(1, 1), pads_before=(1, 1), pads_after=(1, 1)"

FIRES = {
    "product_of_parts": """graph g(%x: float32[2, 3, 256], %z: float32[2, 3, 512])
        %w: float32[768, 256] = constant(0.001)
        %c = Concat[axis=2](%x, %z)
        %y = MatMul(%c, %w)
        return y=%y""",
    "rotary": """graph g(%x: float32[1, 3, 5, 8], %cos: float32[5, 8], %sin: float32[5, 8])
        %a = Slice[starts=(0, 0, 0, 0), sizes=(1, 3, 5, 4), steps=(1, 1, 1, 1)](%x)
        %b = Slice[starts=(0, 0, 0, 4), sizes=(1, 3, 5, 4), steps=(1, 1, 1, 1)](%x)
        %n = Neg(%b)
        %t = Concat[axis=3](%n, %a)
        %p = Mul(%x, %cos)
        %q = Mul(%t, %sin)
        %y = Add(%p, %q)
        return y=%y""",
    "rotary_of_parts": """graph g(%x: float32[2, 5, 10], %cos: float32[5, 4], %sin: float32[5, 4])
        %a = Slice[starts=(0, 0, 2), sizes=(2, 5, 4), steps=(1, 1, 1)](%x)
        %b = Slice[starts=(0, 0, 6), sizes=(2, 5, 4), steps=(1, 1, 1)](%x)
        %ac = Mul(%a, %cos)
        %bs = Mul(%b, %sin)
        %bc = Mul(%cos, %b)
        %as = Mul(%sin, %a)
        %first = Sub(%ac, %bs)
        %second = Add(%as, %bc)
        %y = Concat[axis=2](%first, %second)
        return y=%y""",
    "rotary_of_some": """graph g(%x: float32[2, 5, 10], %cos: float32[5, 4], %sin: float32[5, 4])
        %a = Slice[starts=(0, 0, 0), sizes=(2, 5, 4), steps=(1, 1, 1)](%x)
        %b = Slice[starts=(0, 0, 4), sizes=(2, 5, 6), steps=(1, 1, 1)](%x)
        %r = RotaryEmbedding[interleaved=True](%a, %cos, %sin)
        %y = Concat[axis=2](%r, %b)
        return y=%y""",
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
    "binary_of_expanded": """graph g(%x: float32[5, 2, 3], %z: float32[2, 1])
        %e = Expand[shape=(5, 2, 3)](%z)
        %y = Div(%x, %e)
        return y=%y""",
    "matmul_of_expanded": """graph g(%x: float32[2, 3], %w: float32[5, 3, 4])
        %e = Expand[shape=(5, 2, 3)](%x)
        %y = MatMul(%e, %w)
        return y=%y""",
    "silu": """graph g(%x: float32[2, 3])
        %s = Sigmoid(%x)
        %y = Mul(%s, %x)
        return y=%y""",
    "swish": """graph g(%x: float32[2, 3])
        %factor: float32[] = constant(1.702)
        %m = Mul(%x, %factor)
        %s = Sigmoid(%m)
        %y = Mul(%x, %s)
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
    "split_of_transposed": f"""graph g(%x: float32[2, 20, 4])
        %w: float32[6, 4, 3, 3] = constant
        %t = Transpose[perm=(0, 2, 1)](%x)
        %r = Reshape[shape=(2, 4, 4, 5)](%t)
        %y = Conv[{CONV}](%r, %w)
        return y=%y""",
    "transpose_of_merged": """graph g(%x: float32[2, 6, 4, 5])
        %r = Reshape[shape=(2, 6, 20)](%x)
        %y = Transpose[perm=(0, 2, 1)](%r)
        return y=%y""",
    "channels_of_joined": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %v: float32[2, 4, 3, 3] = constant
        %f: float32[8, 1, 1] = constant
        %c = Conv[{CONV}](%x, %w)
        %d = Conv[{CONV}](%x, %v)
        %j = Concat[axis=1](%c, %d)
        %m = Mul(%j, %f)
        %y = Add(%f, %m)
        return y=%y""",
    "activation_of_joined": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %c = Conv[{CONV}](%x, %w)
        %d = Conv[{CONV}](%x, %w)
        %j = Concat[axis=1](%c, %d)
        %y = Relu(%j)
        return y=%y""",
    "activation_of_moved": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %c = Conv[{CONV}](%x, %w)
        %t = Transpose[perm=(0, 2, 3, 1)](%c)
        %y = Gelu[approximate='none'](%t)
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
        %s = Add(%a, %b)
        %y = Neg(%s)
        return y=%y""",
    "binary_between_transposes": """graph g(%x: float32[2, 3, 4], %z: float32[2, 4, 3])
        %a = Transpose[perm=(0, 2, 1)](%x)
        %s = Mul(%z, %a)
        %y = Transpose[perm=(0, 2, 1)](%s)
        return y=%y""",
    "neutral": """graph g(%x: float32[2, 3])
        %one: float32[1] = constant(1.0)
        %y = Mul(%one, %x)
        return y=%y""",
    "square": """graph g(%x: float32[2, 3])
        %two: float32[] = constant(2.0)
        %y = Pow(%x, %two)
        return y=%y""",
    "cube": """graph g(%x: float32[2, 3])
        %three: float32[] = constant(3.0)
        %y = Pow(%x, %three)
        return y=%y""",
    "root": """graph g(%x: float32[2, 3])
        %a = Abs(%x)
        %half: float32[] = constant(0.5)
        %y = Pow(%a, %half)
        return y=%y""",
    "reciprocal": """graph g(%x: float32[2, 3])
        %one: float32[] = constant(1.0)
        %y = Div(%one, %x)
        return y=%y""",
    "reciprocal_root": """graph g(%x: float32[2, 3])
        %a = Abs(%x)
        %low: float32[] = constant(-0.5)
        %y = Pow(%a, %low)
        return y=%y""",
    "sigmoid": """graph g(%x: float32[2, 3])
        %one: float32[] = constant(1.0)
        %n = Neg(%x)
        %e = Exp(%n)
        %a = Add(%one, %e)
        %y = Reciprocal(%a)
        return y=%y""",
    "mish": """graph g(%x: float32[2, 3])
        %s = Softplus(%x)
        %t = Tanh(%s)
        %y = Mul(%x, %t)
        return y=%y""",
    "gelu_tanh": """graph g(%x: float32[2, 3])
        %root: float32[] = constant(0.7978845834732056)
        %small: float32[] = constant(0.044714998453855515)
        %one: float32[] = constant(1.0)
        %half: float32[] = constant(0.5)
        %q = Sqr(%x)
        %c = Mul(%x, %q)
        %a = Mul(%small, %c)
        %b = Add(%x, %a)
        %d = Mul(%root, %b)
        %t = Tanh(%d)
        %e = Add(%t, %one)
        %h = Mul(%half, %x)
        %y = Mul(%h, %e)
        return y=%y""",
    "softmax": """graph g(%x: float32[2, 3, 4])
        %m = Reduce[kind='max', axes=(1,), keepdims=True](%x)
        %d = Sub(%x, %m)
        %e = Exp(%d)
        %s = Reduce[kind='sum', axes=(1,), keepdims=True](%e)
        %y = Div(%e, %s)
        return y=%y""",
    "rms_norm": """graph g(%x: float32[2, 3, 4])
        %epsilon: float32[] = constant(1e-05)
        %q = Sqr(%x)
        %m = Reduce[kind='mean', axes=(2,), keepdims=True](%q)
        %a = Add(%m, %epsilon)
        %r = Sqrt(%a)
        %i = Reciprocal(%r)
        %y = Mul(%x, %i)
        return y=%y""",
    "l2_norm": """graph g(%x: float32[2, 3, 4])
        %q = Sqr(%x)
        %t = Reduce[kind='sum', axes=(2,), keepdims=True](%q)
        %r = Sqrt(%t)
        %c = Clip[low=1e-12, high=None](%r)
        %e = Expand[shape=(2, 3, 4)](%c)
        %y = Div(%x, %e)
        return y=%y""",
    "layer_norm": """graph g(%x: float32[2, 3, 4])
        %m = Reduce[kind='mean', axes=(1, 2), keepdims=True](%x)
        %d = Sub(%x, %m)
        %y = RMSNorm[axis=1, epsilon=1e-05](%d)
        return y=%y""",
    "norm_parameter": """graph g(%x: float32[2, 3, 4])
        %scale: float32[4] = constant
        %bias: float32[4] = constant
        %n = LayerNorm[axis=2, epsilon=1e-05](%x)
        %m = Mul(%scale, %n)
        %y = Add(%m, %bias)
        return y=%y""",
    "norm_of_one": """graph g(%x: float32[2, 3, 4])
        %one: float32[4] = constant(1.0)
        %zero: float32[4] = constant(0.0)
        %y = LayerNorm[axis=2, epsilon=1e-05](%x, %one, %zero)
        return y=%y""",
    "guarded_attention": f"""graph g({FOUR}, %c: bool[2, 1, 5, 7])
        %zero: float32[] = constant(0.0)
        %low: float32[] = constant(-1e999)
        %m = MatMul[transpose_b=True](%q, %k)
        %mask = Where(%c, %zero, %low)
        %x = Add(%m, %mask)
        %s = Softmax[axis=3](%x)
        %n = IsNaN(%s)
        %w = Where(%n, %zero, %s)
        %y = MatMul(%w, %v)
        return y=%y""",
    "choice_of_one": """graph g(%x: float32[2, 3], %z: float32[3])
        %c: bool[2, 1] = constant(True)
        %zero: float32[] = constant(0.0)
        %low: float32[] = constant(-1e999)
        %all = Expand[shape=(2, 3)](%c)
        %mask = Where(%all, %zero, %low)
        %highest = Reduce[kind='max', axes=(1,), keepdims=True](%mask)
        %none = Equal(%highest, %low)
        %y = Where(%none, %x, %z)
        return y=%y""",
    "mask_of_nothing": f"""graph g({FOUR})
        %zero: float32[1, 1, 1, 1] = constant(0.0)
        %mask = Expand[shape=(1, 1, 5, 7)](%zero)
        %y = Attention[scale=0.5](%q, %k, %v, %mask)
        return y=%y""",
    "transpose_of_some_rows": f"""graph g({FOUR}, %c: bool[2, 1, 5, 1])
        %zero: float32[] = constant(0.0)
        %a = Attention[scale=0.5](%q, %k, %v)
        %w = Where(%c, %zero, %a)
        %t = Transpose[perm=(0, 2, 1, 3)](%w)
        return y=%t""",
    "attention_of_some_rows": f"""graph g({FOUR}, %c: bool[2, 1, 5, 1])
        %zero: float32[] = constant(0.0)
        %m = MatMul[transpose_b=True](%q, %k)
        %s = Softmax[axis=3](%m)
        %w = Where(%c, %zero, %s)
        %y = MatMul(%w, %v)
        return y=%y""",
    "grouped_heads": """graph g(%q: float32[2, 6, 5, 4], %k: float32[2, 3, 7, 4], %v: float32[2, 3, 7, 4])
        %a = Reshape[shape=(2, 3, 1, 7, 4)](%k)
        %b = Expand[shape=(2, 3, 2, 7, 4)](%a)
        %c = Reshape[shape=(2, 6, 7, 4)](%b)
        %d = Reshape[shape=(2, 3, 1, 7, 4)](%v)
        %e = Expand[shape=(2, 3, 2, 7, 4)](%d)
        %f = Reshape[shape=(2, 6, 7, 4)](%e)
        %y = Attention[scale=0.5](%q, %c, %f)
        return y=%y""",
    "constants_together": """graph g(%x: float32[2, 3])
        %a: float32[3] = constant
        %b: float32[1, 3] = constant
        %s = Add(%a, %x)
        %y = Add(%s, %b)
        return y=%y""",
    "conv_scale": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 2, 3, 3] = constant
        %b: float32[6] = constant
        %scale: float32[6, 1, 1] = constant
        %v: float32[6, 3, 2, 2] = constant
        %two: float32[] = constant(2.0)
        %c = Conv[{CONV}, group=2](%x, %w, %b)
        %s = Mul(%scale, %c)
        %t = ConvTranspose[{CONV}, output_padding=(0, 0), group=2](%s, %v)
        %y = Div(%t, %two)
        return y=%y""",
    "conv_bias": f"""graph g(%x: float32[2, 4, 5, 5], %late: float32[1, 6, 1, 1])
        %w: float32[6, 4, 3, 3] = constant
        %v: float32[6, 3, 2, 2] = constant
        %early: float32[3, 1, 1] = constant
        %c = Conv[{CONV}](%x, %w)
        %s = Add(%late, %c)
        %t = ConvTranspose[{CONV}, output_padding=(0, 0)](%s, %v)
        %y = Sub(%t, %early)
        return y=%y""",
    "convolutions_of_one": """graph g(%x: float32[2, 4, 5, 6])
        %w: float32[6, 2, 3, 3] = constant
        %b: float32[6] = constant
        %v: float32[6, 2, 1, 3] = constant
        %c = Conv[strides=(1, 2), dilations=(1, 1), pads_before=(1, 1), pads_after=(1, 1), group=2](%x, %w, %b)
        %d = Conv[strides=(1, 2), dilations=(2, 1), pads_before=(0, 1), pads_after=(0, 1), group=2](%x, %v)
        %y = Add(%d, %c)
        return y=%y""",
    "convolution_and_scale": """graph g(%x: float32[2, 4, 5, 6])
        %w: float32[4, 2, 3, 1] = constant
        %v: float32[4, 4, 2, 2] = constant
        %f: float32[4, 1, 1] = constant
        %t: float32[4, 1, 1] = constant
        %two: float32[] = constant(2.0)
        %c = Conv[strides=(1, 1), dilations=(2, 1), pads_before=(2, 0), pads_after=(2, 0), group=2](%x, %w)
        %m = Mul(%x, %f)
        %z = Add(%m, %t)
        %s = Add(%z, %c)
        %d = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(0, 1), group=1](%s, %v)
        %n = Mul(%s, %two)
        %y = Add(%d, %n)
        return y=%y""",
    "convolution_of_enlarged": """graph g(%x: float32[2, 6, 5, 4])
        %w: float32[4, 6, 1, 1] = constant
        %b: float32[4] = constant
        %r = Resize[sizes=(2, 6, 10, 8), scales=(1.0, 1.0, 2.0, 2.0), mode="linear"](%x)
        %y = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%r, %w, %b)
        return y=%y""",
    "convolution_of_joined": """graph g(%x: float32[2, 6, 5, 4], %z: float32[2, 3, 10, 4], %u: float32[2, 4, 4, 4])
        %w: float32[4, 16, 1, 1] = constant
        %b: float32[4] = constant
        %r = Resize[sizes=(2, 6, 10, 4), scales=(1.0, 1.0, 2.0, 1.0)](%x)
        %s = Resize[sizes=(2, 4, 10, 4), scales=(1.0, 1.0, 0.0, 1.0), mode="cubic"](%u)
        %j = Concat[axis=1](%r, %z, %s, %z)
        %y = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%j, %w, %b)
        return y=%y""",
    "convolution_of_product": """graph g(%a: float32[2, 20, 6], %z: float32[2, 20, 5])
        %v: float32[8, 6] = constant
        %u: float32[5, 8] = constant
        %s: float32[8] = constant
        %w: float32[7, 8, 1, 1] = constant
        %b: float32[7] = constant
        %m = MatMul[transpose_b=True](%a, %v)
        %n = MatMul(%z, %u)
        %o = Add(%n, %s)
        %t = Reshape[shape=(2, 4, 5, 8)](%m)
        %p = Reshape[shape=(2, 4, 5, 8)](%o)
        %i = Transpose[perm=(0, 3, 1, 2)](%t)
        %j = Transpose[perm=(0, 3, 1, 2)](%p)
        %c = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%i, %w)
        %d = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%j, %w, %b)
        %y = Add(%c, %d)
        return y=%y""",
    "conv_of_padded": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %p = Pad[before=(0, 0, 0, 1), after=(0, 0, 1, 2)](%x)
        %y = Conv[{CONV}](%p, %w)
        return y=%y""",
    "matmul_scale": """graph g(%x: float32[2, 5, 4])
        %w: float32[3, 4] = constant
        %v: float32[3, 6] = constant
        %scale: float32[3] = constant
        %two: float32[1, 1] = constant(2.0)
        %m = MatMul[transpose_b=True](%x, %w)
        %s = Mul(%scale, %m)
        %n = MatMul(%s, %v)
        %y = Div(%n, %two)
        return y=%y""",
    "linear_scale": """graph g(%x: float32[2, 5, 4])
        %w: float32[3, 4] = constant
        %bias: float32[3] = constant
        %scale: float32[3] = constant
        %m = MatMul[transpose_b=True](%x, %w)
        %s = Add(%m, %bias)
        %y = Mul(%s, %scale)
        return y=%y""",
    "part_of_product": """graph g(%x: float32[2, 5, 4])
        %w: float32[6, 4] = constant
        %bias: float32[6] = constant
        %m = MatMul[transpose_b=True](%x, %w)
        %s = Add(%m, %bias)
        %a = Slice[starts=(0, 0, 0), sizes=(2, 5, 3), steps=(1, 1, 1)](%s)
        %b = Slice[starts=(0, 0, 3), sizes=(2, 5, 3), steps=(1, 1, 1)](%s)
        %g = Gelu(%b)
        %y = Mul(%a, %g)
        return y=%y""",
    "norm_of_transposed": """graph g(%x: float32[2, 5, 3, 4])
        %scale: float32[4] = constant
        %t = Transpose[perm=(0, 2, 1, 3)](%x)
        %y = RMSNorm[axis=3, epsilon=1e-05](%t, %scale)
        return y=%y""",
    "values_as_columns": """graph g(%x: float32[1, 7, 8], %q: float32[1, 2, 5, 4], %k: float32[1, 2, 7, 4])
        %w: float32[6, 8] = constant
        %m = MatMul[transpose_b=True](%x, %w)
        %h = Reshape[shape=(1, 7, 2, 3)](%m)
        %v = Transpose[perm=(0, 2, 1, 3)](%h)
        %y = Attention[scale=0.5](%q, %k, %v)
        return y=%y""",
    "slice_of_transpose": """graph g(%x: float32[2, 5, 3, 4, 6])
        %t = Transpose[perm=(2, 0, 3, 1, 4)](%x)
        %y = Slice[starts=(1, 0, 0, 1, 0), sizes=(1, 2, 4, 2, 6), steps=(1, 1, 1, 2, 1)](%t)
        return y=%y""",
    "slice_of_reshape": """graph g(%x: float32[2, 5, 3, 4, 6])
        %t = Transpose[perm=(2, 0, 3, 1, 4)](%x)
        %r = Reshape[shape=(3, 8, 5, 6)](%t)
        %y = Slice[starts=(1, 0, 0, 0), sizes=(1, 8, 5, 6), steps=(1, 1, 1, 1)](%r)
        return y=%y""",
    "slice_of_one": """graph g(%x: float32[2, 5, 3, 4, 6])
        %y = Slice[starts=(0, 0, 2, 0, 0), sizes=(2, 5, 1, 4, 6), steps=(1, 1, 1, 1, 1)](%x)
        return y=%y""",
    "transpose_without_ones": """graph g(%x: float32[2, 5, 1, 4, 6])
        %y = Transpose[perm=(2, 0, 3, 1, 4)](%x)
        return y=%y""",
    "slice_of_last": """graph g(%x: float32[2, 5, 3, 4, 6])
        %y = Slice[starts=(0, 0, 0, 0, 1), sizes=(2, 5, 3, 4, 3), steps=(1, 1, 1, 1, 1)](%x)
        return y=%y""",
    "concat_of_rows": """graph g(%a: float32[2, 5, 3, 4, 1], %b: float32[2, 5, 3, 4, 2])
        %y = Concat[axis=4](%a, %b)
        return y=%y""",
}

REFUSES = {
    "swish": """graph g(%x: float32[2, 3])
        %factor: float32[3] = constant
        %m = Mul(%x, %factor)
        %s = Sigmoid(%m)
        %y = Mul(%x, %s)
        return y=%y""",
    "product_of_parts": """graph g(%x: float32[2, 3, 256], %z: float32[2, 3, 512])
        %w: float32[768, 512] = constant
        %c = Concat[axis=2](%x, %z)
        %y = MatMul(%c, %w)
        return y=%y""",
    "rotary": """graph g(%x: float32[1, 3, 5, 8], %cos: float32[5, 8], %sin: float32[5, 8])
        %a = Slice[starts=(0, 0, 0, 0), sizes=(1, 3, 5, 3), steps=(1, 1, 1, 1)](%x)
        %b = Slice[starts=(0, 0, 0, 3), sizes=(1, 3, 5, 5), steps=(1, 1, 1, 1)](%x)
        %t = Concat[axis=3](%b, %a)
        %p = Mul(%x, %cos)
        %q = Mul(%t, %sin)
        %y = Add(%p, %q)
        return y=%y""",
    "rotary_of_parts": """graph g(%x: float32[2, 5, 8], %z: float32[2, 5, 8], %cos: float32[5, 4], %sin: float32[5, 4])
        %a = Slice[starts=(0, 0, 0), sizes=(2, 5, 4), steps=(1, 1, 1)](%x)
        %b = Slice[starts=(0, 0, 4), sizes=(2, 5, 4), steps=(1, 1, 1)](%z)
        %ac = Mul(%a, %cos)
        %bs = Mul(%b, %sin)
        %bc = Mul(%cos, %b)
        %as = Mul(%sin, %a)
        %first = Sub(%ac, %bs)
        %second = Add(%as, %bc)
        %y = Concat[axis=2](%first, %second)
        return y=%y""",
    "rotary_of_some": """graph g(%x: float32[2, 5, 10], %cos: float32[5, 4], %sin: float32[5, 4])
        %a = Slice[starts=(0, 0, 6), sizes=(2, 5, 4), steps=(1, 1, 1)](%x)
        %b = Slice[starts=(0, 0, 0), sizes=(2, 5, 6), steps=(1, 1, 1)](%x)
        %r = RotaryEmbedding[interleaved=True](%a, %cos, %sin)
        %y = Concat[axis=2](%r, %b)
        return y=%y""",
    "slice_of_last": """graph g(%x: float32[2, 5, 3, 4, 6])
        %y = Slice[starts=(0, 0, 0, 0, 1), sizes=(2, 5, 3, 4, 3), steps=(1, 1, 1, 1, 2)](%x)
        return y=%y""",
    "concat_of_rows": """graph g(%a: float32[2, 5, 3, 4], %b: float32[2, 5, 3, 4])
        %y = Concat[axis=3](%a, %b)
        return y=%y""",
    "slice_of_transpose": """graph g(%x: float32[2, 5, 3])
        %t = Transpose[perm=(2, 0, 1)](%x)
        %y = Slice[starts=(1, 0, 0), sizes=(1, 2, 4), steps=(1, 1, 1)](%t)
        return y=%y""",
    "slice_of_reshape": """graph g(%x: float32[2, 5, 3, 4, 6])
        %t = Transpose[perm=(2, 0, 3, 1, 4)](%x)
        %r = Reshape[shape=(6, 4, 5, 6)](%t)
        %y = Slice[starts=(1, 0, 0, 0), sizes=(1, 4, 5, 6), steps=(1, 1, 1, 1)](%r)
        return y=%y""",
    "slice_of_one": """graph g(%x: float32[2, 5, 3, 4, 6])
        %y = Slice[starts=(0, 0, 1, 0, 0), sizes=(2, 5, 2, 4, 6), steps=(1, 1, 1, 1, 1)](%x)
        return y=%y""",
    "transpose_without_ones": """graph g(%x: float32[2, 5, 3, 4, 6])
        %y = Transpose[perm=(2, 0, 3, 1, 4)](%x)
        return y=%y""",
    "values_as_columns": """graph g(%x: float32[2, 7, 8], %q: float32[2, 2, 5, 4], %k: float32[2, 2, 7, 4])
        %w: float32[6, 8] = constant
        %m = MatMul[transpose_b=True](%x, %w)
        %h = Reshape[shape=(2, 7, 2, 3)](%m)
        %v = Transpose[perm=(0, 2, 1, 3)](%h)
        %y = Attention[scale=0.5](%q, %k, %v)
        return y=%y""",
    "norm_of_transposed": """graph g(%x: float32[2, 3, 5, 4])
        %scale: float32[3, 4] = constant
        %t = Transpose[perm=(0, 2, 1, 3)](%x)
        %y = RMSNorm[axis=3, epsilon=1e-05](%t, %scale)
        return y=%y""",
    "constants_together": """graph g(%x: float32[2, 3], %b: float32[3])
        %a: float32[3] = constant
        %s = Add(%a, %x)
        %y = Add(%s, %b)
        return y=%y""",
    "conv_scale": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %scale: float32[5] = constant
        %c = Conv[{CONV}](%x, %w)
        %y = Mul(%scale, %c)
        return y=%y""",
    "conv_bias": f"""graph g(%x: float32[2, 4, 5, 5], %late: float32[2, 6, 1, 1])
        %w: float32[6, 4, 3, 3] = constant
        %c = Conv[{CONV}](%x, %w)
        %y = Add(%late, %c)
        return y=%y""",
    "convolutions_of_one": """graph g(%x: float32[2, 4, 5, 6])
        %w: float32[6, 4, 3, 1] = constant
        %v: float32[6, 4, 1, 3] = constant
        %c = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(1, 0), group=1](%x, %w)
        %d = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 1), pads_after=(0, 1), group=1](%x, %v)
        %y = Add(%d, %c)
        return y=%y""",
    "convolution_and_scale": """graph g(%x: float32[2, 4, 5, 6])
        %w: float32[4, 4, 2, 1] = constant
        %f: float32[4, 1, 6] = constant
        %c = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(0, 0), group=1](%x, %w)
        %m = Mul(%x, %f)
        %y = Add(%m, %c)
        return y=%y""",
    "convolution_of_enlarged": """graph g(%x: float32[2, 6, 5, 4])
        %w: float32[8, 6, 1, 1] = constant
        %r = Resize[sizes=(2, 6, 10, 8), scales=(1.0, 1.0, 2.0, 2.0), mode="linear"](%x)
        %y = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%r, %w)
        return y=%y""",
    "convolution_of_joined": """graph g(%x: float32[2, 6, 5, 4], %z: float32[2, 3, 10, 8])
        %w: float32[4, 9, 1, 1] = constant
        %r = Resize[sizes=(2, 6, 10, 8), scales=(1.0, 1.0, 2.0, 2.0), mode="linear"](%x)
        %j = Concat[axis=1](%r, %z)
        %y = Conv[strides=(2, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%j, %w)
        return y=%y""",
    "convolution_of_product": """graph g(%a: float32[2, 20, 64])
        %v: float32[8, 64] = constant
        %w: float32[80, 8, 1, 1] = constant
        %m = MatMul[transpose_b=True](%a, %v)
        %t = Reshape[shape=(2, 4, 5, 8)](%m)
        %i = Transpose[perm=(0, 3, 1, 2)](%t)
        %y = Conv[strides=(1, 1), dilations=(1, 1), pads_before=(0, 0), pads_after=(0, 0), group=1](%i, %w)
        return y=%y""",
    "conv_of_padded": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %p = Pad[before=(0, 0, 0, 1), after=(0, 0, 1, 2), value=1.0](%x)
        %y = Conv[{CONV}](%p, %w)
        return y=%y""",
    "matmul_scale": """graph g(%x: float32[2, 5, 4], %w: float32[3, 4])
        %two: float32[] = constant(2.0)
        %m = MatMul[transpose_b=True](%x, %w)
        %y = Mul(%two, %m)
        return y=%y""",
    "linear_scale": """graph g(%x: float32[2, 5, 4])
        %w: float32[3, 4] = constant
        %bias: float32[3] = constant
        %scale: float32[3] = constant
        %m = MatMul[transpose_b=True](%x, %w)
        %s = Add(%m, %bias)
        %y = Mul(%s, %scale)
        return y=%y, s=%s""",
    "part_of_product": """graph g(%x: float32[2, 5, 4])
        %w: float32[6, 4] = constant
        %m = MatMul[transpose_b=True](%x, %w)
        %a = Slice[starts=(0, 0, 0), sizes=(2, 5, 3), steps=(1, 1, 1)](%m)
        %b = Slice[starts=(0, 0, 2), sizes=(2, 5, 3), steps=(1, 1, 1)](%m)
        %g = Gelu(%b)
        %y = Mul(%a, %g)
        return y=%y""",
    "neutral": """graph g(%x: float32[3])
        %one: float32[2, 3] = constant(1.0)
        %y = Mul(%one, %x)
        return y=%y""",
    "square": """graph g(%x: float32[3])
        %two: float32[2, 3] = constant(2.0)
        %y = Pow(%x, %two)
        return y=%y""",
    "cube": """graph g(%x: float16[2, 3])
        %three: float16[] = constant(3.0)
        %y = Pow(%x, %three)
        return y=%y""",
    "root": """graph g(%x: int32[2, 3])
        %half: float32[] = constant(0.5)
        %y = Pow(%x, %half)
        return y=%y""",
    "reciprocal": """graph g(%x: float32[3])
        %one: float32[2, 3] = constant(1.0)
        %y = Div(%one, %x)
        return y=%y""",
    "reciprocal_root": """graph g(%x: float16[2, 3])
        %low: float16[] = constant(-0.5)
        %y = Pow(%x, %low)
        return y=%y""",
    "softmax": """graph g(%x: float32[2, 3, 4])
        %e = Exp(%x)
        %s = Reduce[kind='sum', axes=(1, 2), keepdims=True](%e)
        %y = Div(%e, %s)
        return y=%y""",
    "rms_norm": """graph g(%x: float32[2, 3, 4])
        %epsilon: float32[] = constant(1e-05)
        %q = Sqr(%x)
        %m = Reduce[kind='mean', axes=(1,), keepdims=True](%q)
        %a = Add(%m, %epsilon)
        %r = Sqrt(%a)
        %y = Div(%x, %r)
        return y=%y""",
    "l2_norm": """graph g(%x: float32[2, 3, 4])
        %q = Sqr(%x)
        %t = Reduce[kind='sum', axes=(1,), keepdims=True](%q)
        %r = Sqrt(%t)
        %c = Clip[low=1e-12, high=None](%r)
        %y = Div(%x, %c)
        return y=%y""",
    "layer_norm": """graph g(%x: float32[2, 3, 4])
        %m = Reduce[kind='mean', axes=(2,), keepdims=True](%x)
        %d = Sub(%x, %m)
        %y = RMSNorm[axis=1, epsilon=1e-05](%d)
        return y=%y""",
    "norm_parameter": """graph g(%x: float32[2, 3, 4])
        %scale: float32[4] = constant
        %n = LayerNorm[axis=2, epsilon=1e-05](%x)
        %m = Mul(%scale, %n)
        return m=%m, n=%n""",
    "norm_of_one": """graph g(%x: float32[2, 3, 4])
        %one: float32[4] = constant(1.0)
        %bias: float32[4] = constant
        %y = LayerNorm[axis=2, epsilon=1e-05](%x, %one, %bias)
        return y=%y""",
    "guarded_attention": f"""graph g({FOUR})
        %zero: float32[] = constant(0.0)
        %m = MatMul[transpose_b=True](%q, %k)
        %s = Softmax[axis=3](%m)
        %n = IsNaN(%s)
        %w = Where(%n, %zero, %s)
        %y = MatMul(%w, %v)
        return y=%y""",
    "choice_of_one": """graph g(%x: float32[2, 3], %c: bool[2, 1])
        %zero: float32[] = constant(0.0)
        %y = Where(%c, %zero, %x)
        return y=%y""",
    "mask_of_nothing": f"""graph g({FOUR}, %mask: float32[1, 1, 5, 7])
        %y = Attention[scale=0.5](%q, %k, %v, %mask)
        return y=%y""",
    "transpose_of_some_rows": f"""graph g({FOUR}, %c: bool[2, 1, 1, 6])
        %zero: float32[] = constant(0.0)
        %a = Attention[scale=0.5](%q, %k, %v)
        %w = Where(%c, %zero, %a)
        %t = Transpose[perm=(0, 2, 1, 3)](%w)
        return y=%t""",
    "attention_of_some_rows": f"""graph g({FOUR}, %c: bool[2, 1, 5, 7])
        %zero: float32[] = constant(0.0)
        %m = MatMul[transpose_b=True](%q, %k)
        %s = Softmax[axis=3](%m)
        %w = Where(%c, %zero, %s)
        %y = MatMul(%w, %v)
        return y=%y""",
    "grouped_heads": """graph g(%q: float32[2, 6, 5, 4], %k: float32[2, 3, 7, 4], %v: float32[2, 3, 7, 4])
        %a = Reshape[shape=(2, 1, 3, 7, 4)](%k)
        %b = Expand[shape=(2, 2, 3, 7, 4)](%a)
        %c = Reshape[shape=(2, 6, 7, 4)](%b)
        %d = Reshape[shape=(2, 1, 3, 7, 4)](%v)
        %e = Expand[shape=(2, 2, 3, 7, 4)](%d)
        %f = Reshape[shape=(2, 6, 7, 4)](%e)
        %y = Attention[scale=0.5](%q, %c, %f)
        return y=%y""",
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
    "binary_of_expanded": """graph g(%x: float32[2, 3], %z: float32[2, 1])
        %e = Expand[shape=(5, 2, 3)](%z)
        %y = Sub(%e, %x)
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
    "split_of_transposed": """graph g(%x: float32[2, 20, 6])
        %t = Transpose[perm=(0, 2, 1)](%x)
        %y = Reshape[shape=(2, 3, 4, 10)](%t)
        return y=%y""",
    "transpose_of_merged": """graph g(%x: float32[2, 6, 4, 5])
        %r = Reshape[shape=(2, 8, 15)](%x)
        %y = Transpose[perm=(0, 2, 1)](%r)
        return y=%y""",
    "channels_of_joined": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %f: float32[10, 1, 1] = constant
        %c = Conv[{CONV}](%x, %w)
        %j = Concat[axis=1](%c, %x)
        %y = Mul(%j, %f)
        return y=%y""",
    "activation_of_joined": f"""graph g(%x: float32[2, 4, 5, 5])
        %w: float32[6, 4, 3, 3] = constant
        %c = Conv[{CONV}](%x, %w)
        %j = Concat[axis=1](%c, %x)
        %y = Relu(%j)
        return y=%y""",
    "activation_of_moved": """graph g(%x: float32[2, 5])
        %t = Transpose[perm=(1, 0)](%x)
        %y = Relu(%t)
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

ATTENTIONS = {
    "a mask for columns alone": f"""graph g({FOUR}, %m: float32[2, 1, 1, 7])
        %p = MatMul[transpose_b=True](%q, %k)
        %a = Add(%p, %m)
        %s = Softmax[axis=3](%a)
        %y = MatMul(%s, %v)
        return y=%y""",
    "scores where a condition holds": f"""graph g({FOUR}, %c: bool[5, 7])
        %low: float32[] = constant(-3.4028234663852886e+38)
        %p = MatMul[transpose_b=True](%q, %k)
        %a = Where(%c, %p, %low)
        %s = Softmax[axis=3](%a)
        %y = MatMul(%s, %v)
        return y=%y""",
    "scores where a condition does not hold, in three axes": f"""graph g({THREE}, %c: bool[1, 5, 7])
        %two: float32[] = constant(2.0)
        %low: float32[] = constant(-1e+38)
        %p = MatMul[transpose_b=True](%q, %k)
        %h = Div(%p, %two)
        %a = Where(%c, %low, %h)
        %s = Softmax[axis=2](%a)
        %y = MatMul(%s, %v)
        return y=%y""",
    "two masks, with heads merged around them": f"""graph g({THREE}, %m: float32[2, 1, 5, 7], %n: float32[3, 5, 7])
        %p = MatMul[transpose_b=True](%q, %k)
        %r = Reshape[shape=(2, 3, 5, 7)](%p)
        %a = Add(%r, %m)
        %b = Add(%n, %a)
        %s = Softmax[axis=3](%b)
        %t = Reshape[shape=(6, 5, 7)](%s)
        %y = MatMul(%t, %v)
        return y=%y""",
    "a scale for each head, and a mask for each window": f"""graph g({FOUR}, %h: float32[3, 1, 1], {MASKS})
        %p = MatMul[transpose_b=True](%q, %k)
        %c = Mul(%p, %h)
        %a = Add(%c, %m)
        %r = Reshape[shape=(1, 2, 3, 5, 7)](%a)
        %b = Add(%r, %n)
        %t = Reshape[shape=(2, 3, 5, 7)](%b)
        %s = Softmax[axis=3](%t)
        %y = MatMul(%s, %v)
        return y=%y""",
    "one head of k and v for all": """graph g(%q: float32[2, 3, 5, 4], %k: float32[2, 1, 7, 4], %v: float32[2, 1, 7, 6])
        %p = MatMul[transpose_b=True](%q, %k)
        %s = Softmax[axis=3](%p)
        %y = MatMul(%s, %v)
        return y=%y""",
    "a guard that a finite mask does not need": f"""graph g({FOUR}, %c: bool[2, 1, 5, 7])
        %zero: float32[] = constant(0.0)
        %low: float32[] = constant(-3.4028234663852886e+38)
        %p = MatMul[transpose_b=True](%q, %k)
        %m = Where(%c, %zero, %low)
        %a = Add(%p, %m)
        %s = Softmax[axis=3](%a)
        %n = IsNaN(%s)
        %g = Where(%n, %zero, %s)
        %y = MatMul(%g, %v)
        return y=%y""",
}
"""Graphs that are one attention in the end."""

NO_ATTENTIONS = {
    "a scaled mask": f"""graph g({FOUR}, %m: float32[5, 7])
        %two: float32[] = constant(2.0)
        %p = MatMul[transpose_b=True](%q, %k)
        %a = Add(%p, %m)
        %b = Mul(%a, %two)
        %s = Softmax[axis=3](%b)
        %y = MatMul(%s, %v)
        return y=%y""",
    "a choice that has weight": f"""graph g({FOUR}, %c: bool[5, 7])
        %low: float32[] = constant(-10.0)
        %p = MatMul[transpose_b=True](%q, %k)
        %a = Where(%c, %p, %low)
        %s = Softmax[axis=3](%a)
        %y = MatMul(%s, %v)
        return y=%y""",
    "windows that are taken apart behind a mask": f"""graph g({FOUR}, %m: float32[1, 3, 5, 7], %n: float32[2, 1, 1, 5, 7])
        %p = MatMul[transpose_b=True](%q, %k)
        %a = Add(%p, %m)
        %r = Reshape[shape=(2, 1, 3, 5, 7)](%a)
        %b = Add(%r, %n)
        %t = Reshape[shape=(2, 3, 5, 7)](%b)
        %s = Softmax[axis=3](%t)
        %y = MatMul(%s, %v)
        return y=%y""",
    "heads of k and v that differ": """graph g(%q: float32[2, 3, 5, 4], %k: float32[2, 1, 7, 4], %v: float32[2, 3, 7, 6])
        %p = MatMul[transpose_b=True](%q, %k)
        %s = Softmax[axis=3](%p)
        %y = MatMul(%s, %v)
        return y=%y""",
}
"""Graphs that look like attention and are not."""
