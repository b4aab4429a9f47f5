/* The memory of another library, out of its DLPack capsule. */
#include "host.h"
#include "dlpack.h"

#include "dlpack_methods.h"

static void give_back_plain(void *managed) {
    dl_managed *m = managed;
    if (m->deleter) m->deleter(m);
}
static void give_back_versioned(void *managed) {
    dl_versioned *m = managed;
    if (m->deleter) m->deleter(m);
}

static PyObject *refuse(const char *what, long long value) {
    return PyErr_Format(PyExc_BufferError, "DLPack: expected %s, got %lld", what, value);
}

/* The strides where the tensor has none, and the bytes from the first element to behind the last. */
static int read_layout(const dl_tensor *t, int64_t *strides, uint64_t *nbytes) {
    int64_t contiguous = 1, last = 0;
    int empty = 0, overflow = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        int64_t size = t->shape[i], step;
        strides[i] = t->strides ? t->strides[i] : contiguous;
        if (size < 0) return refuse("dimensions from 0", size), -1;
        if (strides[i] < 0) return refuse("strides from 0", strides[i]), -1;
        empty |= size == 0;
        overflow |= __builtin_mul_overflow(contiguous, size, &contiguous);
        overflow |= __builtin_mul_overflow(size - (size > 0), strides[i], &step) || __builtin_add_overflow(last, step, &last);
    }
    *nbytes = empty ? 0 : ((uint64_t)last + 1) * (t->dtype.bits / 8);
    if (!empty && (overflow || last >= CBQ_CUDA_MAX_BYTES / 8)) return refuse("an array that can be", last), -1;
    return 0;
}

static PyObject *as_tuple(const int64_t *numbers, int n) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

enum { MAX_DIMS = 64 };

PyObject *cbq_from_dlpack(PyObject *module, PyObject *capsule) {
    int versioned = PyCapsule_IsValid(capsule, DL_VERSIONED_NAME);
    if (!versioned && !PyCapsule_IsValid(capsule, DL_NAME))
        return PyErr_Format(PyExc_BufferError, "DLPack: expected a capsule that nobody has taken");
    void *managed = PyCapsule_GetPointer(capsule, versioned ? DL_VERSIONED_NAME : DL_NAME);
    if (versioned && ((dl_versioned *)managed)->version.major != DL_MAJOR)
        return refuse("version 1", ((dl_versioned *)managed)->version.major);
    const dl_tensor *t = versioned ? &((dl_versioned *)managed)->tensor : &((dl_managed *)managed)->tensor;
    if (t->device.type != DL_CUDA && t->device.type != DL_CUDA_MANAGED) return refuse("a CUDA device (type 2)", t->device.type);
    if (t->dtype.lanes != 1) return refuse("one lane", t->dtype.lanes);
    if (t->dtype.bits % 8 || t->dtype.bits == 0) return refuse("elements of whole bytes", t->dtype.bits);
    if (t->ndim < 0 || t->ndim > MAX_DIMS) return refuse("at most 64 dimensions", t->ndim);
    int64_t strides[MAX_DIMS];
    uint64_t nbytes;
    if (read_layout(t, strides, &nbytes)) return NULL;
    cbq_memory *m = cbq_new_memory(module, t->device.index, (uint64_t)(uintptr_t)t->data + t->byte_offset, nbytes);
    if (!m) return NULL;
    PyObject *result = Py_BuildValue("(OiiNNO)", m, t->dtype.code, t->dtype.bits, as_tuple(t->shape, t->ndim), as_tuple(strides, t->ndim),
                                     versioned && (((dl_versioned *)managed)->flags & DL_READ_ONLY) ? Py_True : Py_False);
    if (result && PyCapsule_SetName(capsule, versioned ? "used_" DL_VERSIONED_NAME : "used_" DL_NAME)) Py_CLEAR(result);
    if (result) m->managed = managed, m->give_back = versioned ? give_back_versioned : give_back_plain; /* from here on it is ours */
    Py_DECREF(m);
    return result;
}
