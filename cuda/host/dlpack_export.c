/* Memory as a DLPack capsule, for other libraries. */
#include "host.h"
#include "dlpack.h"

#include "dlpack_methods.h"

/* What a capsule holds; `context` of either struct points to it. */
typedef struct {
    union { dl_managed plain; dl_versioned versioned; } as;
    PyObject *memory;
    int64_t numbers[]; /* shape, strides */
} exported;

/* Other libraries let go of an array whenever they like, perhaps without the GIL, perhaps after Python has gone. */
static void let_go(exported *e) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(e->memory);
    PyMem_RawFree(e);
    PyGILState_Release(state);
}
static void delete_plain(dl_managed *self) { let_go(self->context); }
static void delete_versioned(dl_versioned *self) { let_go(self->context); }

/* Of a capsule that nobody took. */
static void destroy_capsule(PyObject *capsule) {
    for (int versioned = 0; versioned < 2; versioned++) {
        const char *name = versioned ? DL_VERSIONED_NAME : DL_NAME;
        if (!PyCapsule_IsValid(capsule, name)) continue;
        void *pointer = PyCapsule_GetPointer(capsule, name);
        let_go(versioned ? ((dl_versioned *)pointer)->context : ((dl_managed *)pointer)->context);
    }
}

static int read_shape(PyObject *shape, Py_ssize_t ndim, int64_t *numbers, int64_t *elements) {
    *elements = 1;
    for (Py_ssize_t i = ndim - 1; i >= 0; i--) {
        if (cbq_get_int(PyTuple_GET_ITEM(shape, i), "shape", 0, INT64_MAX, &numbers[i])) return -1;
        numbers[ndim + i] = *elements;
        if (__builtin_mul_overflow(*elements, numbers[i], elements) || *elements > CBQ_CUDA_MAX_BYTES / 8) {
            PyErr_Format(PyExc_ValueError, "shape: expected fewer elements, got %R", shape);
            return -1;
        }
    }
    return 0;
}

PyObject *cbq_to_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int64_t code, bits, elements;
    cbq_place place;
    if (cbq_get_count(n, 6) || cbq_get_int(args[3], "code", 0, 255, &code) || cbq_get_int(args[4], "bits", 8, 64, &bits)) return NULL;
    if (!PyBool_Check(args[5])) return PyErr_Format(PyExc_TypeError, "versioned: expected a bool, got %.100s", Py_TYPE(args[5])->tp_name);
    int versioned = args[5] == Py_True;
    if (!PyTuple_Check(args[2])) return PyErr_Format(PyExc_TypeError, "shape: expected a tuple, got %.100s", Py_TYPE(args[2])->tp_name);
    Py_ssize_t ndim = PyTuple_GET_SIZE(args[2]);
    exported *e = PyMem_RawCalloc(1, sizeof *e + 2 * (size_t)ndim * sizeof(int64_t));
    if (!e) return PyErr_NoMemory();
    if (read_shape(args[2], ndim, e->numbers, &elements) ||
        cbq_get_place(module, args[0], args[1], "memory", (uint64_t)elements * ((uint64_t)bits / 8), &place)) {
        PyMem_RawFree(e);
        return NULL;
    }
    dl_tensor tensor = {.data = place.at, .ndim = (int32_t)ndim, .shape = e->numbers, .strides = e->numbers + ndim};
    tensor.device.type = DL_CUDA, tensor.device.index = place.memory->device;
    tensor.dtype.code = (uint8_t)code, tensor.dtype.bits = (uint8_t)bits, tensor.dtype.lanes = 1;
    if (versioned) e->as.versioned = (dl_versioned){{DL_MAJOR, DL_MINOR}, e, delete_versioned, 0, tensor};
    else e->as.plain = (dl_managed){tensor, e, delete_plain};
    e->memory = Py_NewRef((PyObject *)place.memory);
    PyObject *capsule = PyCapsule_New(&e->as, versioned ? DL_VERSIONED_NAME : DL_NAME, destroy_capsule);
    if (!capsule) let_go(e);
    return capsule;
}

PyMethodDef cbq_dlpack_methods[] = {
    {"to_dlpack", CBQ_FAST(cbq_to_dlpack), "to_dlpack(memory, offset, shape, code, bits, versioned) -> a capsule that keeps the memory alive"},
    {"from_dlpack", cbq_from_dlpack, METH_O, "from_dlpack(capsule) -> (Memory, code, bits, shape, strides in elements, whether it is read-only)"},
    {NULL, NULL, 0, NULL},
};
