# The targets of a generated project: the library of the model, and the program around it.
#
#   GGML_SOURCE_DIR          a ggml source tree to build against, with its own options (-DGGML_CUDA=ON, -DGGML_VULKAN=ON, ...);
#                            without it, an installed ggml is used (CMAKE_PREFIX_PATH says where)
#   GRAPHC_NATIVE            compile for this machine's processor alone
#   GRAPHC_CPU_ALL_VARIANTS  compile for every processor of this machine's kind: our own code several times, of which the program
#                            chooses when it runs; ggml for the least of them, or with GGML_BACKEND_DL several times too, as
#                            libraries that lie beside the program

option(GRAPHC_CPU_ALL_VARIANTS "Compile for every processor of this kind, and choose the code when the program runs" OFF)
option(GRAPHC_NATIVE "Compile for this machine's processor alone" ON)
set(GGML_SOURCE_DIR "" CACHE PATH "A ggml source tree to build against")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(backends CUDA HIP METAL MUSA OPENCL SYCL VULKAN WEBGPU BLAS RPC CANN OPENVINO)
foreach(backend IN LISTS backends)
  set(wanted_${backend} ${GGML_${backend}})
endforeach()

if(GRAPHC_CPU_ALL_VARIANTS)
  option(GGML_SSE42 "ggml: compile its CPU code for x86-64-v2" ON)  # with less it would compute products without vectors
  foreach(instructions NATIVE AVX AVX2 BMI2 FMA F16C)
    option(GGML_${instructions} "ggml: compile its CPU code for it" OFF)
  endforeach()
  option(GGML_CPU_ALL_VARIANTS "ggml: its CPU code for every processor, as libraries" ${GGML_BACKEND_DL})
endif()
if(GGML_BACKEND_DL)
  option(BUILD_SHARED_LIBS "ggml as shared libraries" ON)
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)  # so that the folder can be moved
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
endif()

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
  graphc/adapt.cpp
  graphc/apart.cpp
  graphc/array.cpp
  graphc/assign.cpp
  graphc/choices.cpp
  graphc/device.cpp
  graphc/engine.cpp
  graphc/fitting.cpp
  graphc/graph.cpp
  graphc/host.cpp
  graphc/kernels.cpp
  graphc/mapping.cpp
  graphc/memory.cpp
  graphc/model.cpp
  graphc/npy.cpp
  graphc/part.cpp
  graphc/placement.cpp
  graphc/replace.cpp
  graphc/residence.cpp
  graphc/sizes.cpp
  graphc/streams.cpp
  graphc/variants.cpp
  graphc/weights.cpp)
target_compile_features(${PROJECT_NAME} PUBLIC cxx_std_17)
target_include_directories(${PROJECT_NAME} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
find_package(Threads REQUIRED)
target_link_libraries(${PROJECT_NAME} PUBLIC ggml::ggml Threads::Threads)

# Kernels must round exactly as those of the in-process model: no contraction to fused multiply-add, no fast math. Products are
# wanted with it.
set(kernel_options ${GRAPHC_KERNEL_OPTIONS})
set(product_options -std=gnu11 -O3 -fwrapv -ffp-contract=fast -fno-math-errno -fno-trapping-math)
if(MSVC)
  set(kernel_options /O2 /fp:precise)
elseif(GRAPHC_NATIVE AND NOT GRAPHC_CPU_ALL_VARIANTS AND NOT CMAKE_CROSSCOMPILING)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(arm64|aarch64)$")
    set(native_option -mcpu=native)
  else()
    set(native_option -march=native)
  endif()
  list(APPEND kernel_options ${native_option})
  list(APPEND product_options ${native_option})
endif()

# Our own code for the CPU, once for each kind of processor; variants.cpp says which processor can run which.
function(add_variant name)
  add_library(${PROJECT_NAME}-${name} OBJECT graphc/variant.c)
  target_compile_definitions(${PROJECT_NAME}-${name} PRIVATE GRAPHC_VARIANT=graphc_${name})
  target_compile_options(${PROJECT_NAME}-${name} PRIVATE ${product_options} ${ARGN})
  target_link_libraries(${PROJECT_NAME}-${name} PRIVATE ggml::ggml)
  target_sources(${PROJECT_NAME} PRIVATE $<TARGET_OBJECTS:${PROJECT_NAME}-${name}>)
endfunction()

if(MSVC)
  # it has no vectors of its own: ggml computes everything
elseif(GRAPHC_CPU_ALL_VARIANTS AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(v3 -mavx2 -mfma -mf16c)
  add_variant(x86_64_v2 -msse4.2)
  add_variant(x86_64_v3 ${v3})
  add_variant(x86_64_v4 ${v3} -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl)
  set_source_files_properties(graphc/variants.cpp PROPERTIES COMPILE_DEFINITIONS GRAPHC_X86_64_VARIANTS)
else()
  add_variant(single)
endif()
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
