// What ggml asks of a backend: its structures in memory, for which it installs no header. They are of GGML_INTERFACE_VERSION; whoever
// registers a backend compares that with the version of the ggml that runs (`graphc_gpu_register`).
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// ggml's GGML_BACKEND_API_VERSION.
#define GGML_INTERFACE_VERSION 2

struct ggml_backend_buffer_type {
    const char * (*get_name)(ggml_backend_buffer_type_t);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t);
    size_t (*get_alignment)(ggml_backend_buffer_type_t);
    size_t (*get_max_size)(ggml_backend_buffer_type_t);                               // may be NULL: no limit
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t, const struct ggml_tensor *);  // may be NULL: the tensor's bytes
    bool (*is_host)(ggml_backend_buffer_type_t);                                       // may be NULL: it is not
    ggml_backend_dev_t device;
    void * context;
};

/// What a buffer can do. It is given to ggml by value.
struct ggml_buffer_functions {
    void (*free_buffer)(ggml_backend_buffer_t);
    void * (*get_base)(ggml_backend_buffer_t);
    enum ggml_status (*init_tensor)(ggml_backend_buffer_t, struct ggml_tensor *);  // may be NULL
    void (*memset_tensor)(ggml_backend_buffer_t, struct ggml_tensor *, uint8_t value, size_t offset, size_t size);
    void (*set_tensor)(ggml_backend_buffer_t, struct ggml_tensor *, const void *, size_t offset, size_t size);
    void (*get_tensor)(ggml_backend_buffer_t, const struct ggml_tensor *, void *, size_t offset, size_t size);
    void (*set_tensor_2d)(void);  // may be NULL, as we leave it: ggml then sets a row at a time
    void (*get_tensor_2d)(void);
    bool (*cpy_tensor)(ggml_backend_buffer_t, const struct ggml_tensor * from, struct ggml_tensor * to);
    void (*clear)(ggml_backend_buffer_t, uint8_t value);
    void (*reset)(ggml_backend_buffer_t);  // may be NULL
};

struct ggml_backend_buffer {
    struct ggml_buffer_functions functions;
    ggml_backend_buffer_type_t type;
    void * context;
    size_t size;
    enum ggml_backend_buffer_usage usage;
};

struct ggml_backend {
    ggml_guid_t guid;
    const char * (*get_name)(ggml_backend_t);
    void (*free)(ggml_backend_t);
    void (*set_tensor_async)(ggml_backend_t, struct ggml_tensor *, const void *, size_t offset, size_t size);
    void (*get_tensor_async)(ggml_backend_t, const struct ggml_tensor *, void *, size_t offset, size_t size);
    void (*set_tensor_2d_async)(void);  // may be NULL, and so may what follows unless we set it
    void (*get_tensor_2d_async)(void);
    bool (*cpy_tensor_async)(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *, struct ggml_tensor *);
    void (*synchronize)(ggml_backend_t);
    void (*graph_plan_create)(void);
    void (*graph_plan_free)(void);
    void (*graph_plan_update)(void);
    void (*graph_plan_compute)(void);
    enum ggml_status (*graph_compute)(ggml_backend_t, struct ggml_cgraph *);
    void (*event_record)(ggml_backend_t, ggml_backend_event_t);
    void (*event_wait)(ggml_backend_t, ggml_backend_event_t);
    void (*graph_optimize)(void);
    ggml_backend_dev_t device;
    void * context;
};

struct ggml_backend_event {
    ggml_backend_dev_t device;
    void * context;
};

struct ggml_backend_device {
    const char * (*get_name)(ggml_backend_dev_t);
    const char * (*get_description)(ggml_backend_dev_t);
    void (*get_memory)(ggml_backend_dev_t, size_t * free, size_t * total);
    enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
    void (*get_props)(ggml_backend_dev_t, struct ggml_backend_dev_props *);
    ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char *);
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
    void (*get_host_buffer_type)(void);  // may be NULL
    void (*buffer_from_host_ptr)(void);  // not asked for where `get_props` says so
    bool (*supports_op)(ggml_backend_dev_t, const struct ggml_tensor *);
    bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
    void (*offload_op)(void);  // may be NULL
    ggml_backend_event_t (*event_new)(ggml_backend_dev_t);
    void (*event_free)(ggml_backend_dev_t, ggml_backend_event_t);
    void (*event_synchronize)(ggml_backend_dev_t, ggml_backend_event_t);
    ggml_backend_reg_t registry;
    void * context;
};

struct ggml_backend_reg {
    int version;  // GGML_INTERFACE_VERSION
    const char * (*get_name)(ggml_backend_reg_t);
    size_t (*get_device_count)(ggml_backend_reg_t);
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t, size_t);
    void * (*get_proc_address)(ggml_backend_reg_t, const char *);
    void * context;
};

/// What a node of GGML_OP_CUSTOM has in its `op_params`.
struct ggml_custom_parameters {
    ggml_custom_op_t function;
    int tasks;
    void * userdata;
};
