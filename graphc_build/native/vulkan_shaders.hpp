#pragma once

// Included before ggml's Vulkan backend. One of its functions makes all pipelines, some thousand lines behind macros, and runs once;
// clang would take minutes to optimize it.

#include <memory>

struct vk_device_struct;
struct vk_pipeline_struct;
static void ggml_vk_load_shaders(std::shared_ptr<vk_device_struct> & device, std::shared_ptr<vk_pipeline_struct> requested)
    __attribute__((optnone, noinline));
