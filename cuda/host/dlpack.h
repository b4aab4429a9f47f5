/* The structs of DLPack 1.0, as its specification lays them out (https://dmlc.github.io/dlpack/latest/c_api.html). The old
   one has no version; both come in capsules, whose name says which it is and changes when it has been taken. */
#pragma once
#include <stdint.h>

enum { DL_CUDA = 2, DL_CUDA_MANAGED = 13 };             /* types of devices */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4 }; /* codes of types */
enum { DL_MAJOR = 1, DL_MINOR = 0, DL_READ_ONLY = 1 };
#define DL_NAME "dltensor"
#define DL_VERSIONED_NAME "dltensor_versioned"

typedef struct {
    void *data;
    struct { int32_t type, index; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides; /* in elements; strides may be NULL: C-contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self); /* may be NULL */
} dl_managed;

typedef struct dl_versioned {
    struct { uint32_t major, minor; } version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;
