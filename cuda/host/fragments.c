/* Weights in the layout for fragments: how many bytes, to and from blocks, decoded. */
#include "formats.h"

#include "base.h"

int cbq_get_weights(PyObject *object, const char *name, cbq_cuda_weights *w, const cbq_format **format, uint64_t *nbytes) {
    static const char *const names[] = {"tag", "experts", "n", "k"};
    int64_t v[4];
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 4) {
        PyErr_Format(PyExc_TypeError, "%s: expected (tag, experts, n, k), got %R", name, object);
        return -1;
    }
    for (int i = 0; i < 4; i++)
        if (cbq_get_int(PyTuple_GET_ITEM(object, i), names[i], i ? 0 : INT32_MIN, INT32_MAX, &v[i])) return -1;
    *w = (cbq_cuda_weights){.tag = (int)v[0], .experts = (uint64_t)v[1], .n = (uint64_t)v[2], .k = (uint64_t)v[3]};
    *format = cbq_cuda_format(w->tag);
    if (!*format) return -1;
    if (w->k % (uint64_t)(*format)->elements) {
        PyErr_Format(PyExc_ValueError, "k: expected a multiple of %d (%s), got %lld", (*format)->elements, (*format)->name, (long long)v[3]);
        return -1;
    }
    uint64_t row = w->k / (uint64_t)(*format)->elements * (uint64_t)(*format)->bytes;
    if (!__builtin_mul_overflow(row, w->experts * w->n, nbytes) && *nbytes <= CBQ_FRAGMENTS_MAX_BYTES) return 0;
    PyErr_Format(PyExc_ValueError, "%s: too many bytes", name);
    return -1;
}

int cbq_get_fragments(PyObject *module, PyObject *memory, PyObject *offset, const char *name, const cbq_cuda_weights *w, cbq_place *place) {
    return cbq_get_place(module, memory, offset, name, cbq_cuda_fragment_bytes(w), place) || cbq_check_aligned(place, name) ? -1 : 0;
}

static int check_class(const cbq_cuda_weights *w, const cbq_format *format) {
    cbq_cuda_weights one = {.tag = w->tag, .experts = 1, .n = 1, .k = (uint64_t)format->elements};
    if (cbq_cuda_fragment_bytes(&one)) return 0;
    PyErr_Format(PyExc_ValueError, "tag: there are no fragments of %s", format->name);
    return -1;
}

static PyObject *fragment_bytes(PyObject *module, PyObject *weights) {
    (void)module;
    cbq_cuda_weights w;
    const cbq_format *format;
    uint64_t nbytes;
    if (cbq_get_weights(weights, "weights", &w, &format, &nbytes) || check_class(&w, format)) return NULL;
    return PyLong_FromUnsignedLongLong(cbq_cuda_fragment_bytes(&w));
}

/* (weights, blocks, offset, fragments, offset, stream), either way. */
static PyObject *repack(PyObject *module, PyObject *const *args, Py_ssize_t n, int is_packing) {
    cbq_cuda_weights w;
    const cbq_format *format;
    uint64_t nbytes;
    cbq_place blocks, fragments;
    cudaStream_t stream;
    int before;
    if (cbq_get_count(n, 6) || cbq_get_weights(args[0], "weights", &w, &format, &nbytes) || check_class(&w, format)) return NULL;
    if (cbq_get_place(module, args[1], args[2], "blocks", nbytes, &blocks) || cbq_check_aligned(&blocks, "blocks")) return NULL;
    if (cbq_get_fragments(module, args[3], args[4], "fragments", &w, &fragments) || cbq_get_stream(args[5], "stream", &stream)) return NULL;
    int device = blocks.memory->device;
    if (fragments.memory->device != device)
        return PyErr_Format(PyExc_ValueError, "fragments: expected device %d, got %d", device, fragments.memory->device);
    const char *name = "";
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error && is_packing) error = cbq_cuda_pack(&w, blocks.at, fragments.at, stream, &name);
    else if (!error) error = cbq_cuda_unpack(&w, fragments.at, blocks.at, stream, &name);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, is_packing ? "packing weights" : "unpacking weights") ? NULL : PyUnicode_FromString(name);
}
static PyObject *pack(PyObject *module, PyObject *const *args, Py_ssize_t n) { return repack(module, args, n, 1); }
static PyObject *unpack(PyObject *module, PyObject *const *args, Py_ssize_t n) { return repack(module, args, n, 0); }

static PyObject *dequant_fragments(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    cbq_cuda_weights w;
    const cbq_format *format;
    uint64_t nbytes;
    int dtype, before;
    cbq_place fragments, out;
    cudaStream_t stream;
    if (cbq_get_count(n, 7) || cbq_get_weights(args[0], "weights", &w, &format, &nbytes) || check_class(&w, format)) return NULL;
    if (cbq_get_dtype(args[1], "dtype", &dtype) || cbq_get_fragments(module, args[2], args[3], "fragments", &w, &fragments)) return NULL;
    uint64_t out_bytes = w.experts * w.n * w.k * (dtype == CBQ_F32 ? 4 : 2);
    if (cbq_get_place(module, args[4], args[5], "out", out_bytes, &out) || cbq_check_aligned(&out, "out")) return NULL;
    if (cbq_get_stream(args[6], "stream", &stream)) return NULL;
    int device = fragments.memory->device;
    if (out.memory->device != device) return PyErr_Format(PyExc_ValueError, "out: expected device %d, got %d", device, out.memory->device);
    const char *name = "";
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = cbq_cuda_dequant_fragments(&w, dtype, fragments.at, out.at, stream, &name);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "dequant") ? NULL : PyUnicode_FromString(name);
}

PyMethodDef cbq_fragment_methods[] = {
    {"fragment_bytes", fragment_bytes, METH_O, "fragment_bytes((tag, experts, n, k)) -> bytes that the weights take in fragments"},
    {"pack", CBQ_FAST(pack), "pack(weights, blocks, offset, fragments, offset, stream) -> the kernel's name"},
    {"unpack", CBQ_FAST(unpack), "unpack(weights, blocks, offset, fragments, offset, stream) -> the kernel's name"},
    {"dequant_fragments", CBQ_FAST(dequant_fragments),
     "dequant_fragments(weights, dtype, fragments, offset, out, offset, stream) -> the kernel's name"},
    {NULL, NULL, 0, NULL},
};
