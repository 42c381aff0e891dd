# The targets of a generated project: the library of the model, and the program around it.
#
#   GGML_SOURCE_DIR   a ggml source tree to build against, with its own options (-DGGML_CUDA=ON, -DGGML_VULKAN=ON, ...);
#                     without it, an installed ggml is used (CMAKE_PREFIX_PATH says where)
#   GRAPHC_NATIVE     compile the generated kernels for this machine's processor

option(GRAPHC_NATIVE "Compile the generated kernels for this machine's processor" ON)
set(GGML_SOURCE_DIR "" CACHE PATH "A ggml source tree to build against")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(backends CUDA HIP METAL MUSA OPENCL SYCL VULKAN WEBGPU BLAS RPC CANN OPENVINO)
foreach(backend IN LISTS backends)
  set(wanted_${backend} ${GGML_${backend}})
endforeach()

if(GGML_SOURCE_DIR)
  option(GGML_LLAMAFILE "ggml: faster matrix products on the CPU" ON)
  option(BUILD_SHARED_LIBS "ggml as shared libraries" OFF)
  if(NOT TARGET ggml)  # another model of the same application may have added it
    add_subdirectory("${GGML_SOURCE_DIR}" "${CMAKE_CURRENT_BINARY_DIR}/ggml" EXCLUDE_FROM_ALL)
  endif()
  if(NOT TARGET ggml::ggml)
    add_library(ggml::ggml ALIAS ggml)
  endif()
else()
  find_package(ggml CONFIG REQUIRED)
  foreach(backend IN LISTS backends)
    string(TOLOWER "ggml-${backend}" library)
    if(wanted_${backend} AND NOT library IN_LIST GGML_AVAILABLE_BACKENDS)
      message(FATAL_ERROR "The installed ggml was built without ${backend}: give a source tree with -DGGML_SOURCE_DIR=...")
    endif()
  endforeach()
endif()

add_library(${PROJECT_NAME} STATIC
  model.cpp
  weights.cpp
  graphc/activations.c
  graphc/adapt.cpp
  graphc/array.cpp
  graphc/assign.cpp
  graphc/attention.c
  graphc/device.cpp
  graphc/engine.cpp
  graphc/graph.cpp
  graphc/host.cpp
  graphc/kernels.cpp
  graphc/mapping.cpp
  graphc/model.cpp
  graphc/norm.c
  graphc/npy.cpp
  graphc/part.cpp
  graphc/products.c
  graphc/replace.cpp
  graphc/sizes.cpp
  graphc/weights.cpp
  graphc/winograd.c)
target_compile_features(${PROJECT_NAME} PUBLIC cxx_std_17)
target_include_directories(${PROJECT_NAME} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(${PROJECT_NAME} PUBLIC ggml::ggml)

# Kernels must round exactly as those of the in-process model: no contraction to fused multiply-add, no fast math. Products are
# wanted with it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(arm64|aarch64)$")
  set(native_option -mcpu=native)
else()
  set(native_option -march=native)
endif()
if(MSVC)
  set(kernel_options /O2 /fp:precise)
  set(product_options /O2)
else()
  set(kernel_options ${GRAPHC_KERNEL_OPTIONS})
  set(product_options -std=gnu11 -O3 -fwrapv -ffp-contract=fast -fno-math-errno -fno-trapping-math)
  if(GRAPHC_NATIVE AND NOT CMAKE_CROSSCOMPILING)
    list(APPEND kernel_options ${native_option})
    list(APPEND product_options ${native_option})
  endif()
endif()
set_source_files_properties(graphc/activations.c graphc/attention.c graphc/norm.c graphc/products.c graphc/winograd.c PROPERTIES COMPILE_OPTIONS "${product_options}")
if(GRAPHC_KERNEL_SOURCES)
  target_sources(${PROJECT_NAME} PRIVATE ${GRAPHC_KERNEL_SOURCES})
  set_source_files_properties(${GRAPHC_KERNEL_SOURCES} PROPERTIES COMPILE_OPTIONS "${kernel_options}")
endif()
if(UNIX)
  target_link_libraries(${PROJECT_NAME} PUBLIC m)
endif()

add_executable(${PROJECT_NAME}-run main.cpp graphc/command.cpp graphc/random.cpp)
target_link_libraries(${PROJECT_NAME}-run PRIVATE ${PROJECT_NAME})
set_target_properties(${PROJECT_NAME}-run PROPERTIES OUTPUT_NAME model)

add_executable(${PROJECT_NAME}-example EXCLUDE_FROM_ALL example.cpp)
target_link_libraries(${PROJECT_NAME}-example PRIVATE ${PROJECT_NAME})
set_target_properties(${PROJECT_NAME}-example PROPERTIES OUTPUT_NAME example)
