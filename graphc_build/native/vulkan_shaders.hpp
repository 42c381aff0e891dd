#pragma once

// Included before ggml's Vulkan backend. One of its functions, which makes all pipelines, has some ten thousand lines behind macros;
// clang takes minutes to optimize it, and it runs once.

#include <memory>

struct vk_device_struct;
static void ggml_vk_load_shaders(std::shared_ptr<vk_device_struct> & device) __attribute__((optnone, noinline));
