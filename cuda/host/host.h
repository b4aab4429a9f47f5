/* What the files of the module share. Every call names its device, or gets it from the memory that it works on; the
   device that was current is current again afterwards. The GIL is released around all that talks to the driver. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Sizes and offsets are below this, so that sums of a few of them never overflow. */
#define CBQ_CUDA_MAX_BYTES (INT64_C(1) << 60)

/* ---- error.c ---- */

/* 0, or -1 with cbquant.cuda.CudaError raised: the only way from an error of CUDA to a Python one. `operation` is what failed. */
int cbq_cuda_check(cudaError_t error, const char *operation);

/* Makes a device current, and the one before it again. */
cudaError_t cbq_enter(int device, int *before);
void cbq_leave(int device, int before);

/* ---- arguments.c: 0, or -1 with an exception that names the argument ---- */

int cbq_get_count(Py_ssize_t given, Py_ssize_t expected);
int cbq_get_int(PyObject *object, const char *name, int64_t low, int64_t high, int64_t *value);
int cbq_get_device(PyObject *object, int *device);
int cbq_get_stream(PyObject *object, const char *name, cudaStream_t *stream);
int cbq_get_address(PyObject *object, uint64_t *address);
int cbq_get_dtype(PyObject *object, const char *name, int *dtype); /* CBQ_F32, CBQ_F16 or CBQ_BF16 */

/* ---- memory.c ---- */

/* Memory of a device: our own, or that of an array of another library, which is given back when the object dies. */
typedef struct {
    PyObject_HEAD
    int device;
    long pid; /* of the process that allocated it; 0 where it is not ours */
    uint64_t address, nbytes;
    void *managed;
    void (*give_back)(void *managed);
} cbq_memory;

typedef struct {
    PyTypeObject *memory, *event;
} cbq_cuda_state;

PyTypeObject *cbq_make_memory_type(PyObject *module);
PyTypeObject *cbq_make_event_type(PyObject *module);

cbq_memory *cbq_new_memory(PyObject *module, int device, uint64_t address, uint64_t nbytes);

/* A Memory and an offset, from which at least `nbytes` are in it. */
typedef struct {
    cbq_memory *memory;
    char *at;
} cbq_place;
int cbq_get_memory(PyObject *module, PyObject *object, const char *name, cbq_memory **memory);
int cbq_get_place(PyObject *module, PyObject *memory, PyObject *offset, const char *name, uint64_t nbytes, cbq_place *place);
int cbq_check_aligned(const cbq_place *place, const char *name);
/* Weights: at a multiple of 16, with a margin on both sides. */
int cbq_check_blocks(const cbq_place *place, const char *name, uint64_t nbytes);

extern PyMethodDef cbq_device_methods[], cbq_memory_methods[], cbq_stream_methods[], cbq_kernel_methods[], cbq_product_methods[],
    cbq_fragment_methods[], cbq_dlpack_methods[], cbq_operator_methods[];
#define CBQ_FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL
