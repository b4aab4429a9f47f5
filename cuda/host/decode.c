/* dequant, and the list of kernels. */
#include "host.h"
#include "formats.h"
#include "kernels.h"
#include "../device/plane_blocks.h"

#include "base.h"

/* Weights in planes are blocks of the device, which no file has. */
#define ROW(f, number, n, size, ...) {.name = #f, .tag = number, .elements = n, .bytes = size},
static const cbq_format plane_blocks[] = {CBQ_PLANE_BLOCKS(ROW)};

const cbq_format *cbq_cuda_format(int tag) {
    for (size_t i = 0; i < sizeof plane_blocks / sizeof *plane_blocks; i++)
        if (plane_blocks[i].tag == tag) return &plane_blocks[i];
    for (int i = 0; i < cbq_n_formats; i++)
        if (cbq_formats[i].tag == tag) return &cbq_formats[i];
    PyErr_Format(PyExc_ValueError, "tag: there is no format %d", tag);
    return NULL;
}

static PyObject *dequant(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int64_t tag, n_blocks;
    int dtype, before;
    cbq_place blocks, out;
    cudaStream_t stream;
    if (cbq_get_count(n, 8) || cbq_get_int(args[0], "tag", INT32_MIN, INT32_MAX, &tag) || cbq_get_dtype(args[1], "dtype", &dtype)) return NULL;
    const cbq_format *f = cbq_cuda_format((int)tag);
    if (!f || cbq_get_int(args[4], "n_blocks", 0, CBQ_CUDA_MAX_BYTES / 4096, &n_blocks)) return NULL;
    uint64_t nbytes = (uint64_t)n_blocks * (uint64_t)f->bytes, out_bytes = (uint64_t)n_blocks * (uint64_t)f->elements * (dtype == CBQ_F32 ? 4 : 2);
    if (cbq_get_place(module, args[2], args[3], "blocks", nbytes, &blocks) || cbq_check_blocks(&blocks, "blocks", nbytes)) return NULL;
    if (cbq_get_place(module, args[5], args[6], "out", out_bytes, &out) || cbq_check_aligned(&out, "out")) return NULL;
    if (cbq_get_stream(args[7], "stream", &stream)) return NULL;
    int device = blocks.memory->device;
    if (out.memory->device != device) return PyErr_Format(PyExc_ValueError, "out: expected device %d, got %d", device, out.memory->device);
    const char *name = "";
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = cbq_cuda_dequant((int)tag, dtype, blocks.at, (uint64_t)n_blocks, out.at, stream, &name);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "dequant") ? NULL : PyUnicode_FromString(name);
}

static PyObject *attributes_of(const char *name, const struct cudaFuncAttributes *a) {
    return Py_BuildValue("{s:s,s:i,s:K,s:K,s:i,s:i}", "name", name, "registers", a->numRegs, "shared_bytes", (unsigned long long)a->sharedSizeBytes,
                         "local_bytes", (unsigned long long)a->localSizeBytes, "max_threads", a->maxThreadsPerBlock, "binary_version",
                         a->binaryVersion);
}

static PyObject *kernels(PyObject *module, PyObject *argument) {
    (void)module;
    int device, before;
    if (cbq_get_device(argument, &device)) return NULL;
    PyObject *list = PyList_New(0);
    const void *function;
    const char *name;
    for (int i = 0; list && (name = cbq_cuda_kernel(i, &function)); i++) {
        struct cudaFuncAttributes a;
        cudaError_t error;
        Py_BEGIN_ALLOW_THREADS
        error = cbq_enter(device, &before);
        if (!error) error = cudaFuncGetAttributes(&a, function);
        cbq_leave(device, before);
        Py_END_ALLOW_THREADS
        PyObject *row = cbq_cuda_check(error, name) ? NULL : attributes_of(name, &a);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

typedef struct {
    const char *block, *member, *type;
    size_t offset, nbytes;
} plane_field;
#define FIELD(f, member, type) {#f, #member, type, offsetof(cbq_##f##_block, member), sizeof(((cbq_##f##_block *)0)->member)},
static const plane_field plane_fields[] = {CBQ_PLANE_FIELDS(FIELD)};

static PyObject *fields_of(const char *block) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < sizeof plane_fields / sizeof *plane_fields; i++) {
        const plane_field *f = &plane_fields[i];
        if (strcmp(f->block, block) != 0) continue;
        PyObject *row = Py_BuildValue("(ssnn)", f->member, f->type, (Py_ssize_t)f->offset, (Py_ssize_t)f->nbytes);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *list_plane_blocks(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    const Py_ssize_t n = sizeof plane_blocks / sizeof *plane_blocks;
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        const cbq_format *f = &plane_blocks[i];
        PyObject *fields = fields_of(f->name), *row = fields ? Py_BuildValue("(siiiN)", f->name, f->tag, f->elements, f->bytes, fields) : NULL;
        if (!row) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, row);
    }
    return list;
}

PyMethodDef cbq_kernel_methods[] = {
    {"dequant", CBQ_FAST(dequant), "dequant(tag, dtype, blocks, offset, n_blocks, out, out_offset, stream) -> the kernel's name"},
    {"kernels", kernels, METH_O, "kernels(device) -> list of dicts: name, registers, shared_bytes, local_bytes, max_threads, binary_version"},
    {"plane_blocks", list_plane_blocks, METH_NOARGS,
     "plane_blocks() -> list of (name, tag, elements, bytes, fields): what planes are on the device. fields: (member, NumPy's type, offset, bytes)"},
    {NULL, NULL, 0, NULL},
};
