// What of Vulkan's interface is used here, declared by ourselves: neither an SDK nor its headers are needed.
//
// Numbers and layouts are those of the Vulkan specification, version 1.3 (and VK_KHR_cooperative_matrix,
// VK_KHR_workgroup_memory_explicit_layout). Structures of features are a head and truth values in the order that it says.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define VULKAN_CALL __stdcall
#else
#define VULKAN_CALL
#endif

typedef struct vulkan_handle * vulkan_object;  // of an instance, a device, a queue or a command buffer
typedef uint64_t vulkan_number;                // of everything else
typedef uint32_t vulkan_bool;

enum {
    VULKAN_NOT_READY = 1, VULKAN_TIMEOUT = 2, VULKAN_INCOMPLETE = 5,
    VULKAN_OUT_OF_HOST_MEMORY = -1, VULKAN_OUT_OF_DEVICE_MEMORY = -2, VULKAN_DEVICE_LOST = -4, VULKAN_INCOMPATIBLE_DRIVER = -9,
    VULKAN_VERSION_1_3 = 1 << 22 | 3 << 12,
    VULKAN_INTEGRATED = 1, VULKAN_SOFTWARE = 4,
    VULKAN_SUBGROUP_BASIC = 1, VULKAN_SUBGROUP_VOTE = 2, VULKAN_SUBGROUP_SHUFFLE = 0x10, VULKAN_SCOPE_SUBGROUP = 3, VULKAN_HALF = 0, VULKAN_SINGLE = 1,
    VULKAN_QUEUE_COMPUTE = 2,
    VULKAN_MEMORY_DEVICE = 1, VULKAN_MEMORY_VISIBLE = 2, VULKAN_MEMORY_COHERENT = 4, VULKAN_MEMORY_CACHED = 8,
    VULKAN_BUFFER_USES = 1 | 2 | 0x20 | 0x20000,  // source, target, storage, address
    VULKAN_ALLOCATE_ADDRESS = 2,
    VULKAN_STAGE_COMPUTE = 0x20,
    VULKAN_PIPELINE_COMPUTE = 0x800, VULKAN_PIPELINE_TRANSFER = 0x1000, VULKAN_PIPELINE_HOST = 0x4000, VULKAN_PIPELINE_END = 0x2000,
    VULKAN_ACCESS_READ = 0x20 | 0x800, VULKAN_ACCESS_WRITE = 0x40 | 0x1000, VULKAN_ACCESS_COPIED = 0x1000, VULKAN_ACCESS_HOST_READ = 0x2000,
    VULKAN_FULL_SUBGROUPS = 2,
    VULKAN_RESET_COMMANDS = 2, VULKAN_SUBMIT_ONCE = 1, VULKAN_SUBMIT_AGAIN = 4,
    VULKAN_QUERY_TIMESTAMP = 2, VULKAN_QUERY_64 = 1, VULKAN_QUERY_WAIT = 2,
    VULKAN_TIMELINE = 1,
};
#define VULKAN_WHOLE UINT64_MAX

enum vulkan_structure {
    VULKAN_APPLICATION_INFO = 0, VULKAN_INSTANCE_INFO = 1, VULKAN_QUEUE_INFO = 2, VULKAN_DEVICE_INFO = 3, VULKAN_SUBMIT_INFO = 4,
    VULKAN_MEMORY_INFO = 5, VULKAN_BUFFER_INFO = 12, VULKAN_SHADER_INFO = 16, VULKAN_STAGE_INFO = 18, VULKAN_PIPELINE_INFO = 29,
    VULKAN_LAYOUT_INFO = 30, VULKAN_POOL_INFO = 39, VULKAN_COMMANDS_INFO = 40, VULKAN_BEGIN_INFO = 42, VULKAN_BARRIER = 46,
    VULKAN_QUERY_INFO = 11, VULKAN_SEMAPHORE_INFO = 9,
    VULKAN_FEATURES_11 = 49, VULKAN_FEATURES_12 = 51, VULKAN_FEATURES_13 = 53, VULKAN_FEATURES_2 = 1000059000,
    VULKAN_PROPERTIES_2 = 1000059001, VULKAN_MEMORY_PROPERTIES_2 = 1000059006,
    VULKAN_ALLOCATE_FLAGS = 1000060000, VULKAN_MAINTENANCE_3 = 1000168000, VULKAN_SUBGROUP_PROPERTIES = 1000094000,
    VULKAN_SEMAPHORE_TYPE = 1000207002, VULKAN_TIMELINE_SUBMIT = 1000207003, VULKAN_SEMAPHORE_WAIT = 1000207004,
    VULKAN_PCI = 1000212000, VULKAN_SUBGROUP_SIZES = 1000225000, VULKAN_SUBGROUP_REQUIRED = 1000225001,
    VULKAN_BUDGET = 1000237000, VULKAN_ADDRESS_INFO = 1000244001, VULKAN_EXPLICIT_LAYOUT = 1000336000,
    VULKAN_COOPERATIVE = 1000506000, VULKAN_COOPERATIVE_SHAPE = 1000506001, VULKAN_PROPERTIES_12 = 52,
};

/// The features of structures that are asked for, as places among their truth values.
enum {
    VULKAN_COUNT_ALL = 55, VULKAN_FEATURE_FLOAT64 = 39, VULKAN_FEATURE_INT64 = 40, VULKAN_FEATURE_INT16 = 41,
    VULKAN_COUNT_11 = 12, VULKAN_FEATURE_STORAGE_16 = 0,
    VULKAN_COUNT_12 = 47, VULKAN_FEATURE_STORAGE_8 = 2, VULKAN_FEATURE_FLOAT16 = 7, VULKAN_FEATURE_INT8 = 8, VULKAN_FEATURE_SUBGROUP_TYPES = 34,
    VULKAN_FEATURE_TIMELINE = 37, VULKAN_FEATURE_ADDRESS = 38, VULKAN_FEATURE_MEMORY_MODEL = 41,
    VULKAN_COUNT_13 = 15, VULKAN_FEATURE_SUBGROUP_SIZES = 7, VULKAN_FEATURE_FULL_SUBGROUPS = 8,
    VULKAN_COUNT_LAYOUT = 4, VULKAN_COUNT_COOPERATIVE = 2,
};

struct vulkan_head {
    int32_t type;
    void * next;
};
#define VULKAN_TRUTHS(name, count)                                                            \
    struct name {                                                                             \
        struct vulkan_head head;                                                              \
        vulkan_bool is[count];                                                                \
    }
VULKAN_TRUTHS(vulkan_features, VULKAN_COUNT_ALL);
VULKAN_TRUTHS(vulkan_features_11, VULKAN_COUNT_11);
VULKAN_TRUTHS(vulkan_features_12, VULKAN_COUNT_12);
VULKAN_TRUTHS(vulkan_features_13, VULKAN_COUNT_13);
VULKAN_TRUTHS(vulkan_features_layout, VULKAN_COUNT_LAYOUT);
VULKAN_TRUTHS(vulkan_features_cooperative, VULKAN_COUNT_COOPERATIVE);

struct vulkan_application { struct vulkan_head head; const char * name; uint32_t version; const char * engine; uint32_t engine_version, api; };
struct vulkan_instance_info {
    struct vulkan_head head; uint32_t flags; const struct vulkan_application * application;
    uint32_t layer_count; const char * const * layers; uint32_t extension_count; const char * const * extensions;
};
struct vulkan_queue_info { struct vulkan_head head; uint32_t flags, family, count; const float * priorities; };
struct vulkan_device_info {
    struct vulkan_head head; uint32_t flags, queue_count; const struct vulkan_queue_info * queues;
    uint32_t layer_count; const char * const * layers; uint32_t extension_count; const char * const * extensions; const void * features;
};
struct vulkan_extension { char name[256]; uint32_t version; };
struct vulkan_family { uint32_t flags, count, timestamp_bits, granularity[3]; };

/// Of the limits only what is looked at; the rest is space.
struct vulkan_properties {
    struct vulkan_head head;
    uint32_t api, driver, vendor, device; int32_t type; char name[256]; uint8_t cache[16]; uint32_t gap;
    struct {
        uint32_t before_push[8]; uint32_t push_constants, allocations; uint8_t between[176];
        uint32_t shared, groups[3], invocations, size[3]; uint8_t later[176]; float timestamp_period; uint8_t rest[76];
    } limits;
    uint32_t sparse[5];
};
struct vulkan_pci { struct vulkan_head head; uint32_t domain, bus, device, function; };
/// Of those of Vulkan 1.2 only what is looked at.
struct vulkan_properties_12 { struct vulkan_head head; uint32_t before[132]; vulkan_bool keeps_specials_16, keeps_specials; uint32_t later[46]; };
struct vulkan_shape { struct vulkan_head head; uint32_t m, n, k; int32_t a, b, c, result; vulkan_bool saturating; int32_t scope; };
struct vulkan_maintenance { struct vulkan_head head; uint32_t sets; uint64_t largest; };
struct vulkan_subgroup { struct vulkan_head head; uint32_t size, stages, operations; vulkan_bool quads; };
struct vulkan_subgroup_sizes { struct vulkan_head head; uint32_t least, most, groups, stages; };
struct vulkan_subgroup_required { struct vulkan_head head; uint32_t size; };
struct vulkan_memory_kinds {
    struct vulkan_head head; uint32_t type_count; struct { uint32_t flags, heap; } types[32];
    uint32_t heap_count; struct { uint64_t size; uint32_t flags; } heaps[16];
};
struct vulkan_budget { struct vulkan_head head; uint64_t budget[16], usage[16]; };

struct vulkan_buffer_info { struct vulkan_head head; uint32_t flags; uint64_t size; uint32_t usage; int32_t sharing; uint32_t family_count; const uint32_t * families; };
struct vulkan_requirements { uint64_t size, alignment; uint32_t types; };
struct vulkan_allocate_flags { struct vulkan_head head; uint32_t flags, mask; };
struct vulkan_memory_info { struct vulkan_head head; uint64_t size; uint32_t type; };
struct vulkan_address_info { struct vulkan_head head; vulkan_number buffer; };
struct vulkan_region { uint64_t from, to, size; };

struct vulkan_shader_info { struct vulkan_head head; uint32_t flags; size_t size; const uint32_t * code; };
struct vulkan_stage_info { struct vulkan_head head; uint32_t flags, stage; vulkan_number module; const char * name; const void * constants; };
struct vulkan_pipeline_info { struct vulkan_head head; uint32_t flags; struct vulkan_stage_info stage; vulkan_number layout, base; int32_t base_index; };
struct vulkan_push_range { uint32_t stages, offset, size; };
struct vulkan_layout_info { struct vulkan_head head; uint32_t flags, set_count; const void * sets; uint32_t range_count; const struct vulkan_push_range * ranges; };

struct vulkan_pool_info { struct vulkan_head head; uint32_t flags, family; };
struct vulkan_commands_info { struct vulkan_head head; vulkan_number pool; int32_t level; uint32_t count; };
struct vulkan_begin_info { struct vulkan_head head; uint32_t flags; const void * inheritance; };
struct vulkan_barrier { struct vulkan_head head; uint32_t from, to; };
struct vulkan_query_info { struct vulkan_head head; uint32_t flags; int32_t type; uint32_t count, statistics; };
struct vulkan_semaphore_type { struct vulkan_head head; int32_t kind; uint64_t value; };
struct vulkan_semaphore_info { struct vulkan_head head; uint32_t flags; };
struct vulkan_semaphore_wait { struct vulkan_head head; uint32_t flags, count; const vulkan_number * semaphores; const uint64_t * values; };
struct vulkan_timeline_submit { struct vulkan_head head; uint32_t wait_count; const uint64_t * waits; uint32_t signal_count; const uint64_t * signals; };
struct vulkan_submit_info {
    struct vulkan_head head; uint32_t wait_count; const vulkan_number * waits; const uint32_t * stages;
    uint32_t command_count; const vulkan_object * commands; uint32_t signal_count; const vulkan_number * signals;
};

/// The functions of the library, of an instance and of a device: what they are called without "vk", what they give, and what they take.
#define VULKAN_LIBRARY_CALLS(X)                                                                                                    \
    X(CreateInstance, int32_t, (const struct vulkan_instance_info *, const void *, vulkan_object *))

#define VULKAN_INSTANCE_CALLS(X)                                                                                                   \
    X(DestroyInstance, void, (vulkan_object, const void *))                                                                        \
    X(EnumeratePhysicalDevices, int32_t, (vulkan_object, uint32_t *, vulkan_object *))                                             \
    X(EnumerateDeviceExtensionProperties, int32_t, (vulkan_object, const char *, uint32_t *, struct vulkan_extension *))           \
    X(GetPhysicalDeviceProperties2, void, (vulkan_object, struct vulkan_properties *))                                             \
    X(GetPhysicalDeviceFeatures2, void, (vulkan_object, struct vulkan_features *))                                                 \
    X(GetPhysicalDeviceMemoryProperties2, void, (vulkan_object, struct vulkan_memory_kinds *))                                     \
    X(GetPhysicalDeviceQueueFamilyProperties, void, (vulkan_object, uint32_t *, struct vulkan_family *))                           \
    X(CreateDevice, int32_t, (vulkan_object, const struct vulkan_device_info *, const void *, vulkan_object *))                    \
    X(GetDeviceProcAddr, void *, (vulkan_object, const char *))

#define VULKAN_DEVICE_CALLS(X)                                                                                                     \
    X(DestroyDevice, void, (vulkan_object, const void *))                                                                          \
    X(DeviceWaitIdle, int32_t, (vulkan_object))                                                                                    \
    X(GetDeviceQueue, void, (vulkan_object, uint32_t, uint32_t, vulkan_object *))                                                  \
    X(CreateBuffer, int32_t, (vulkan_object, const struct vulkan_buffer_info *, const void *, vulkan_number *))                    \
    X(DestroyBuffer, void, (vulkan_object, vulkan_number, const void *))                                                           \
    X(GetBufferMemoryRequirements, void, (vulkan_object, vulkan_number, struct vulkan_requirements *))                             \
    X(AllocateMemory, int32_t, (vulkan_object, const struct vulkan_memory_info *, const void *, vulkan_number *))                  \
    X(FreeMemory, void, (vulkan_object, vulkan_number, const void *))                                                              \
    X(BindBufferMemory, int32_t, (vulkan_object, vulkan_number, vulkan_number, uint64_t))                                          \
    X(MapMemory, int32_t, (vulkan_object, vulkan_number, uint64_t, uint64_t, uint32_t, void **))                                   \
    X(GetBufferDeviceAddress, uint64_t, (vulkan_object, const struct vulkan_address_info *))                                       \
    X(CreateSemaphore, int32_t, (vulkan_object, const struct vulkan_semaphore_info *, const void *, vulkan_number *))              \
    X(DestroySemaphore, void, (vulkan_object, vulkan_number, const void *))                                                        \
    X(WaitSemaphores, int32_t, (vulkan_object, const struct vulkan_semaphore_wait *, uint64_t))                                    \
    X(CreateShaderModule, int32_t, (vulkan_object, const struct vulkan_shader_info *, const void *, vulkan_number *))              \
    X(DestroyShaderModule, void, (vulkan_object, vulkan_number, const void *))                                                     \
    X(CreatePipelineLayout, int32_t, (vulkan_object, const struct vulkan_layout_info *, const void *, vulkan_number *))            \
    X(DestroyPipelineLayout, void, (vulkan_object, vulkan_number, const void *))                                                   \
    X(CreateComputePipelines, int32_t,                                                                                             \
      (vulkan_object, vulkan_number, uint32_t, const struct vulkan_pipeline_info *, const void *, vulkan_number *))                \
    X(DestroyPipeline, void, (vulkan_object, vulkan_number, const void *))                                                         \
    X(CreateQueryPool, int32_t, (vulkan_object, const struct vulkan_query_info *, const void *, vulkan_number *))                  \
    X(DestroyQueryPool, void, (vulkan_object, vulkan_number, const void *))                                                        \
    X(GetQueryPoolResults, int32_t, (vulkan_object, vulkan_number, uint32_t, uint32_t, size_t, void *, uint64_t, uint32_t))        \
    X(CreateCommandPool, int32_t, (vulkan_object, const struct vulkan_pool_info *, const void *, vulkan_number *))                 \
    X(DestroyCommandPool, void, (vulkan_object, vulkan_number, const void *))                                                      \
    X(AllocateCommandBuffers, int32_t, (vulkan_object, const struct vulkan_commands_info *, vulkan_object *))                      \
    X(FreeCommandBuffers, void, (vulkan_object, vulkan_number, uint32_t, const vulkan_object *))                                   \
    X(BeginCommandBuffer, int32_t, (vulkan_object, const struct vulkan_begin_info *))                                              \
    X(EndCommandBuffer, int32_t, (vulkan_object))                                                                                  \
    X(QueueSubmit, int32_t, (vulkan_object, uint32_t, const struct vulkan_submit_info *, vulkan_number))                           \
    X(CmdBindPipeline, void, (vulkan_object, int32_t, vulkan_number))                                                              \
    X(CmdPushConstants, void, (vulkan_object, vulkan_number, uint32_t, uint32_t, uint32_t, const void *))                          \
    X(CmdDispatch, void, (vulkan_object, uint32_t, uint32_t, uint32_t))                                                            \
    X(CmdCopyBuffer, void, (vulkan_object, vulkan_number, vulkan_number, uint32_t, const struct vulkan_region *))                  \
    X(CmdUpdateBuffer, void, (vulkan_object, vulkan_number, uint64_t, uint64_t, const void *))                                      \
    X(CmdFillBuffer, void, (vulkan_object, vulkan_number, uint64_t, uint64_t, uint32_t))                                           \
    X(CmdPipelineBarrier, void,                                                                                                    \
      (vulkan_object, uint32_t, uint32_t, uint32_t, uint32_t, const struct vulkan_barrier *, uint32_t, const void *, uint32_t, const void *)) \
    X(CmdResetQueryPool, void, (vulkan_object, vulkan_number, uint32_t, uint32_t))                                                 \
    X(CmdWriteTimestamp, void, (vulkan_object, uint32_t, vulkan_number, uint32_t))

#define VULKAN_DECLARED(name, gives, takes) gives(VULKAN_CALL * name) takes;
struct vulkan_library { VULKAN_LIBRARY_CALLS(VULKAN_DECLARED) VULKAN_INSTANCE_CALLS(VULKAN_DECLARED) };
struct vulkan_functions { VULKAN_DEVICE_CALLS(VULKAN_DECLARED) };
#undef VULKAN_DECLARED
