"""The cases that do not pass, and why: the one list of what graphc cannot do of ONNX's backend tests.

`tests/test_suite.py` fails if a case that is listed passes, or if one that is not listed fails.
"""

from __future__ import annotations

REFUSED: dict[str, tuple[str, ...]] = {
    "gradients of graphs are not supported": ("test_gradient_of_add", "test_gradient_of_add_and_mul"),
}
"""Refused with a clear error, by reason."""

DIFFERENT: dict[str, tuple[str, ...]] = {
    "expected are the rounding errors of NumPy's float32 transform, where the exact result is 0": (
        "test_dft_inverse",
        "test_dft_inverse_opset19",
    ),
    "aligned corners of an axis whose size is rounded: onnx's reference goes on with the size that is not; the standard's "
    "formula, PyTorch (both of its exporters write this node, with scales, for F.interpolate) and onnxruntime with the one that "
    "the axis has": (
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    ),
    "a softmax of float16: onnx's reference rounds each of its steps, PyTorch and graphc the result alone": (
        "test_attention_4d_causal_fp16_expanded",
    ),
}
"""Results beyond the tolerance, by reason: only where what is expected is not the better answer."""


DRAWN: dict[str, tuple[str, ...]] = {
    "the expected numbers are one draw of NumPy's generator, which no seed in the model determines; the standard says that they "
    "are for information only": (
        "test_bernoulli",
        "test_bernoulli_double",
        "test_bernoulli_double_expanded",
        "test_bernoulli_expanded",
        "test_bernoulli_seed",
        "test_bernoulli_seed_expanded",
    ),
}
"""Random results, by reason: of the right dtype and shape, and each as likely as what is expected."""


REFUSED_IN_CPP: dict[str, tuple[str, ...]] = {
    "a branch, a loop, or what follows on a size that depends on data": ("test_if",),
    "a size that the elements of a tensor give": (
        "test_center_crop_pad_crop",
        "test_center_crop_pad_crop_and_pad",
        "test_center_crop_pad_crop_and_pad_expanded",
        "test_center_crop_pad_crop_axes_chw",
        "test_center_crop_pad_crop_axes_chw_expanded",
        "test_center_crop_pad_crop_axes_hwc",
        "test_center_crop_pad_crop_axes_hwc_expanded",
        "test_center_crop_pad_crop_expanded",
        "test_center_crop_pad_crop_negative_axes_hwc",
        "test_center_crop_pad_crop_negative_axes_hwc_expanded",
        "test_center_crop_pad_pad",
        "test_center_crop_pad_pad_expanded",
        "test_compress_0",
        "test_compress_1",
        "test_compress_bfloat16",
        "test_compress_default_axis",
        "test_compress_negative_axis",
        "test_constantofshape_float_ones",
        "test_constantofshape_int_shape_zero",
        "test_constantofshape_int_zeros",
        "test_edge_pad",
        "test_expand_dim_changed",
        "test_expand_dim_unchanged",
        "test_nonmaxsuppression_center_point_box_format",
        "test_nonmaxsuppression_flipped_coordinates",
        "test_nonmaxsuppression_identical_boxes",
        "test_nonmaxsuppression_iou_threshold_boundary",
        "test_nonmaxsuppression_limit_output_size",
        "test_nonmaxsuppression_single_box",
        "test_nonmaxsuppression_suppress_by_IOU",
        "test_nonmaxsuppression_suppress_by_IOU_and_scores",
        "test_nonmaxsuppression_two_batches",
        "test_nonmaxsuppression_two_classes",
        "test_nonzero_example",
        "test_range_bfloat16_type_positive_delta_expanded",
        "test_range_float16_type_positive_delta_expanded",
        "test_range_float_type_positive_delta_expanded",
        "test_range_int32_type_negative_delta_expanded",
        "test_reflect_pad",
        "test_reshape_allowzero_reordered",
        "test_reshape_extended_dims",
        "test_reshape_negative_dim",
        "test_reshape_negative_extended_dims",
        "test_reshape_one_dim",
        "test_reshape_reduced_dims",
        "test_reshape_reordered_all_dims",
        "test_reshape_reordered_last_dims",
        "test_reshape_zero_and_negative_dim",
        "test_reshape_zero_dim",
        "test_resize_downsample_sizes_cubic",
        "test_resize_downsample_sizes_linear_pytorch_half_pixel",
        "test_resize_downsample_sizes_nearest",
        "test_resize_upsample_sizes_cubic",
        "test_resize_upsample_sizes_nearest",
        "test_resize_upsample_sizes_nearest_axes_2_3",
        "test_resize_upsample_sizes_nearest_axes_3_2",
        "test_resize_upsample_sizes_nearest_ceil_half_pixel",
        "test_resize_upsample_sizes_nearest_floor_align_corners",
        "test_resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric",
        "test_slice_default_axes",
        "test_split_variable_parts_1d_opset13",
        "test_split_variable_parts_1d_opset18",
        "test_split_variable_parts_2d_opset13",
        "test_split_variable_parts_2d_opset18",
        "test_split_variable_parts_default_axis_opset13",
        "test_split_variable_parts_default_axis_opset18",
        "test_split_zero_size_splits_opset13",
        "test_split_zero_size_splits_opset18",
        "test_tile",
        "test_tile_precomputed",
        "test_top_k",
        "test_top_k_negative_axis",
        "test_top_k_same_values",
        "test_top_k_same_values_2d",
        "test_top_k_same_values_largest",
        "test_top_k_smallest",
        "test_top_k_uint64",
        "test_unique_bfloat16_sorted_without_axis",
        "test_unique_length_1",
        "test_unique_not_sorted_without_axis",
        "test_unique_sorted_with_axis",
        "test_unique_sorted_with_axis_3d",
        "test_unique_sorted_with_negative_axis",
        "test_unique_sorted_without_axis",
        "test_wrap_pad",
        "test_expand_shape_model1",
        "test_expand_shape_model2",
        "test_expand_shape_model3",
        "test_expand_shape_model4",
    ),
}
"""What a C++ project cannot do of what the process can, by reason."""


def expected_status(name: str) -> str:
    """What a case is known to do."""
    for status, lists in (("refused", REFUSED), ("wrong", DIFFERENT), ("drawn", DRAWN)):
        if any(name in names for names in lists.values()):
            return status
    return "pass"


def expected_in_cpp(name: str) -> str:
    """What a case is known to do in C++."""
    return "refused" if any(name in names for names in REFUSED_IN_CPP.values()) else expected_status(name)
