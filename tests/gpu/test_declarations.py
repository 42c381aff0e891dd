"""What the backend declares of ggml and of CUDA itself, against the headers of both."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from graphc.backends.generated import file_text
from graphc.ggml_library import ggml_include
from graphc.ggml_source import ggml_source

CUDA = next(
    (path for path in map(Path, ("/usr/local/cuda/include", "/usr/include")) if (path / "cuda.h").is_file()), None
)

ELSEWHERE = {
    "version": "api_version",
    "type": "buft",
    "registry": "reg",
    "functions": "iface",
    "struct ggml_buffer_functions": "struct ggml_backend_buffer_i",
    "struct ggml_custom_parameters": "struct ggml_custom_op_params",
    "function": "fun",
    "tasks": "n_tasks",
    "GGML_INTERFACE_VERSION": "GGML_BACKEND_API_VERSION",
}
"""What is called otherwise in ggml's own header."""


def printed(tmp_path: Path, text: str, *flags: object) -> list[str]:
    """What a C program prints."""
    (tmp_path / "program.c").write_text(text)
    command = [
        "cc",
        "-std=gnu11",
        "-O1",
        "-w",
        "-Wl,--unresolved-symbols=ignore-all",
        *map(str, flags),
        tmp_path / "program.c",
        "-o",
        tmp_path / "program",
    ]
    subprocess.run(command, check=True)
    return subprocess.run([tmp_path / "program"], check=True, capture_output=True, text=True).stdout.splitlines()


def members() -> list[tuple[str, str]]:
    """The structures of interface.h and their members."""
    found = []
    for struct, body in re.findall(r"^(struct \w+) \{\n(.*?)^\};", file_text("interface.h"), re.M | re.S):
        found += [(struct, name) for name in re.findall(r"\(\*(\w+)\)|\b(\w+);", body) for name in name if name]
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_ggmls_structures_are_what_they_are_declared_to_be(tmp_path):
    source = ggml_source()

    def program(header: str, name: str) -> str:
        return f'{header}\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ printf("%d\\n", {name});\n'

    places = members()
    assert len(places) > 70
    own = program(f'#include "{tmp_path}/interface.h"', "GGML_INTERFACE_VERSION")
    theirs = program('#include "ggml-backend-impl.h"\n#include "ggml-impl.h"', "GGML_BACKEND_API_VERSION")
    (tmp_path / "interface.h").write_text(file_text("interface.h"))
    impl = (source / "src" / "ggml-backend-impl.h").read_text()
    for struct, name in places:
        own += f'printf("%zu %zu\\n", offsetof({struct}, {name}), sizeof({struct}));\n'
        other = ELSEWHERE.get(struct, struct)
        inside = f"{other}_i" if f"{other}_i {{" in impl and f"(*{name})" in impl.replace(" ", "") else ""
        path = f"iface.{name}" if inside and not name.startswith("ggml") else ELSEWHERE.get(name, name)
        theirs += f'printf("%zu %zu\\n", offsetof({other}, {path}), sizeof({other}));\n'
    includes = [f"-I{ggml_include()}"]
    expected = printed(tmp_path, theirs + "}", f"-I{source}/src", f"-I{source}/include")
    assert printed(tmp_path, own + "}", *includes) == expected


LAUNCH_FIELDS = {
    "grid": "gridDimX", "threads": "blockDimX", "shared": "sharedMemBytes", "stream": "hStream", "attributes": "attrs",
    "attribute_count": "numAttrs",
}  # fmt: skip


@pytest.mark.skipif(CUDA is None, reason="needs cuda.h")
def test_cudas_functions_and_numbers_are_what_they_are_declared_to_be(tmp_path):
    text = file_text("cuda_calls.h")
    numbers = {
        "CUDA_OUT_OF_MEMORY": "CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA_NO_DEVICE": "CUDA_ERROR_NO_DEVICE",
        "CUDA_STREAM_NON_BLOCKING": "CU_STREAM_NON_BLOCKING",
        "CUDA_EVENT_DISABLE_TIMING": "CU_EVENT_DISABLE_TIMING",
        "CUDA_CAPTURE_THREAD_LOCAL": "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL",
        "CUDA_JIT_ERROR_LOG": "CU_JIT_ERROR_LOG_BUFFER",
        "CUDA_JIT_ERROR_LOG_SIZE": "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
        "CUDA_FUNCTION_PTX_ARCHITECTURE": "CU_FUNC_ATTRIBUTE_PTX_VERSION",
        "CUDA_LAUNCH_EARLY": "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION",
        "CUDA_FUNCTION_MAX_SHARED": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        "CUDA_ATTRIBUTE_MULTIPROCESSORS": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
        "CUDA_ATTRIBUTE_INTEGRATED": "CU_DEVICE_ATTRIBUTE_INTEGRATED",
        "CUDA_ATTRIBUTE_CACHE": "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE",
        "CUDA_ATTRIBUTE_THREADS": "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR",
        "CUDA_ATTRIBUTE_MAJOR": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
        "CUDA_ATTRIBUTE_MINOR": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        "CUDA_ATTRIBUTE_REGISTERS": "CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR",
        "CUDA_ATTRIBUTE_SHARED": "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    }
    assert set(numbers) == set(re.findall(r"^    (CUDA_\w+) = \d+,", text, re.M))
    functions = re.findall(r"X\(\w+, (cu\w+),\s*\(([^;]*?)\)\)\s*(?:\\|$)", text, re.M)
    assert len(functions) > 35
    header = (CUDA / "cuda.h").read_text()
    checks = "".join(
        f"_Static_assert({own} == {theirs}, {own!r});\n".replace("'", '"') for own, theirs in numbers.items()
    )
    structures = [("struct cuda_launch", "CUlaunchConfig"), ("struct cuda_launch_attribute", "CUlaunchAttribute")]
    places = [(own, theirs, "sizeof", "", "") for own, theirs in structures]
    places += [(*structures[0], "offsetof", *names) for names in LAUNCH_FIELDS.items()]
    places += [(*structures[1], "offsetof", "value", "value")]
    for own, theirs, operator, here, there in places:
        comma = ", " if here else ""
        checks += (
            f'_Static_assert({operator}({own}{comma}{here}) == {operator}({theirs}{comma}{there}), "{own} {here}");\n'
        )
    for name, parameters in functions:
        called = "|".join([name, *re.findall(rf"#define\s+(\w+)\s+(?:\w+\()?{name}\b", header)])
        declared = re.search(rf"CUresult CUDAAPI (?:{called})\(([^;]*)\);", header)
        assert declared, name
        count = 0 if parameters == "void" else len(parameters.split(","))
        assert count == (0 if declared[1] == "void" else len(declared[1].split(","))), name
        assert re.search(rf"\b{name}\b", header), name
    (tmp_path / "cuda_calls.h").write_text(text)
    printed(
        tmp_path,
        f'#include <stddef.h>\n#include <cuda.h>\n#include "cuda_calls.h"\n{checks}int main(void) {{ return 0; }}',
        f"-I{CUDA}",
        f"-I{tmp_path}",
    )


VULKAN = Path("/usr/include/vulkan/vulkan_core.h")

VULKAN_STRUCTURES = {
    "features": "PhysicalDeviceFeatures2", "features_11": "PhysicalDeviceVulkan11Features",
    "features_12": "PhysicalDeviceVulkan12Features", "features_13": "PhysicalDeviceVulkan13Features",
    "features_layout": "PhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR", "application": "ApplicationInfo",
    "instance_info": "InstanceCreateInfo", "queue_info": "DeviceQueueCreateInfo", "device_info": "DeviceCreateInfo",
    "extension": "ExtensionProperties", "family": "QueueFamilyProperties", "properties": "PhysicalDeviceProperties2",
    "pci": "PhysicalDevicePCIBusInfoPropertiesEXT", "maintenance": "PhysicalDeviceMaintenance3Properties",
    "properties_12": "PhysicalDeviceVulkan12Properties",
    "subgroup": "PhysicalDeviceSubgroupProperties", "subgroup_sizes": "PhysicalDeviceSubgroupSizeControlProperties",
    "subgroup_required": "PipelineShaderStageRequiredSubgroupSizeCreateInfo", "memory_kinds": "PhysicalDeviceMemoryProperties2",
    "budget": "PhysicalDeviceMemoryBudgetPropertiesEXT", "buffer_info": "BufferCreateInfo", "requirements": "MemoryRequirements",
    "allocate_flags": "MemoryAllocateFlagsInfo", "memory_info": "MemoryAllocateInfo", "address_info": "BufferDeviceAddressInfo",
    "region": "BufferCopy", "shader_info": "ShaderModuleCreateInfo", "stage_info": "PipelineShaderStageCreateInfo",
    "pipeline_info": "ComputePipelineCreateInfo", "push_range": "PushConstantRange", "layout_info": "PipelineLayoutCreateInfo",
    "pool_info": "CommandPoolCreateInfo", "commands_info": "CommandBufferAllocateInfo", "begin_info": "CommandBufferBeginInfo",
    "barrier": "MemoryBarrier", "query_info": "QueryPoolCreateInfo", "semaphore_type": "SemaphoreTypeCreateInfo",
    "semaphore_info": "SemaphoreCreateInfo", "semaphore_wait": "SemaphoreWaitInfo",
    "timeline_submit": "TimelineSemaphoreSubmitInfo", "submit_info": "SubmitInfo",
}  # fmt: skip
"""What structures of vulkan_calls.h are called in Vulkan's header."""

VULKAN_LIMITS = {
    "push_constants": "maxPushConstantsSize", "shared": "maxComputeSharedMemorySize", "groups": "maxComputeWorkGroupCount",
    "invocations": "maxComputeWorkGroupInvocations", "timestamp_period": "timestampPeriod",
}  # fmt: skip

VULKAN_TRUTHS = {
    "VULKAN_FEATURE_FLOAT64": "Features.shaderFloat64", "VULKAN_FEATURE_INT64": "Features.shaderInt64",
    "VULKAN_FEATURE_INT16": "Features.shaderInt16", "VULKAN_FEATURE_STORAGE_16": "Vulkan11Features.storageBuffer16BitAccess",
    "VULKAN_FEATURE_STORAGE_8": "Vulkan12Features.storageBuffer8BitAccess",
    "VULKAN_FEATURE_FLOAT16": "Vulkan12Features.shaderFloat16", "VULKAN_FEATURE_INT8": "Vulkan12Features.shaderInt8",
    "VULKAN_FEATURE_SUBGROUP_TYPES": "Vulkan12Features.shaderSubgroupExtendedTypes",
    "VULKAN_FEATURE_TIMELINE": "Vulkan12Features.timelineSemaphore",
    "VULKAN_FEATURE_ADDRESS": "Vulkan12Features.bufferDeviceAddress",
    "VULKAN_FEATURE_MEMORY_MODEL": "Vulkan12Features.vulkanMemoryModel",
    "VULKAN_FEATURE_SUBGROUP_SIZES": "Vulkan13Features.subgroupSizeControl",
    "VULKAN_FEATURE_FULL_SUBGROUPS": "Vulkan13Features.computeFullSubgroups",
}  # fmt: skip
"""The truth values of features: each has a place, counted behind the head."""


@pytest.mark.skipif(not VULKAN.is_file(), reason="needs Vulkan's headers")
def test_vulkans_structures_are_what_they_are_declared_to_be(tmp_path):
    text = file_text("vulkan_calls.h")
    (tmp_path / "vulkan_calls.h").write_text(text)
    declared = set(re.findall(r"^struct vulkan_(\w+) \{|^VULKAN_TRUTHS\(vulkan_(\w+),", text, re.M))
    named = {first or second for first, second in declared}
    assert named - set(VULKAN_STRUCTURES) == {"head", "library", "functions", "features_cooperative", "shape"}
    checks = [f"sizeof(struct vulkan_{own}) == sizeof(Vk{theirs})" for own, theirs in VULKAN_STRUCTURES.items()]
    whole, limits = "VkPhysicalDeviceProperties2", "properties.limits."
    checks += [
        f"offsetof(struct vulkan_properties, limits.{own}) == offsetof({whole}, {limits}{theirs})"
        for own, theirs in VULKAN_LIMITS.items()
    ]
    keeps = "offsetof(VkPhysicalDeviceVulkan12Properties, shaderSignedZeroInfNanPreserveFloat32)"
    checks.append(f"offsetof(struct vulkan_properties_12, keeps_specials) == {keeps}")
    for own, theirs in VULKAN_TRUTHS.items():
        struct, _, member = f"VkPhysicalDevice{theirs}".partition(".")
        head = 0 if struct.endswith("DeviceFeatures") else "sizeof(struct vulkan_head)"
        checks.append(f"{own} * sizeof(VkBool32) == offsetof({struct}, {member}) - {head}")
    functions = re.findall(r"^    X\((\w+),", text, re.M)
    assert len(functions) > 40
    uses = "".join(f"(void) sizeof(PFN_vk{name});\n" for name in functions)
    asserted = "".join(f'_Static_assert({each}, "{each}");\n' for each in checks)
    program = (
        f'#include <vulkan/vulkan_core.h>\n#include "vulkan_calls.h"\n{asserted}int main(void) {{ {uses} return 0; }}'
    )
    printed(tmp_path, program, f"-I{VULKAN.parents[1]}", f"-I{tmp_path}")
