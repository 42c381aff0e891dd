#pragma once

#include "ggml-backend.h"

#include <string>

namespace graphc {

/// Make known the devices that run generated kernels (gpu/gpu.h), where the driver and a device are there.
void load_generated();

/// True for these devices.
bool is_generated(ggml_backend_dev_t device);

/// What went wrong on them since it was last asked in this thread; empty if nothing did. ggml's functions do not tell.
std::string device_error();

/// Throws Error if something went wrong on them since it was last asked in this thread.
void check_devices();

}  // namespace graphc
