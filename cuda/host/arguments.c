/* Arguments of the module's functions. */
#include "host.h"

#include "base.h"

int cbq_get_count(Py_ssize_t given, Py_ssize_t expected) {
    if (given == expected) return 0;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, given);
    return -1;
}

int cbq_get_int(PyObject *object, const char *name, int64_t low, int64_t high, int64_t *value) {
    if (PyBool_Check(object) || !PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a whole number, got %.100s", name, Py_TYPE(object)->tp_name);
        return -1;
    }
    PyObject *index = PyNumber_Index(object);
    if (!index) return -1;
    int overflow;
    *value = PyLong_AsLongLongAndOverflow(index, &overflow);
    int bad = overflow || *value < low || *value > high;
    if (bad) PyErr_Format(PyExc_ValueError, "%s: expected %lld to %lld, got %S", name, (long long)low, (long long)high, index);
    Py_DECREF(index);
    return bad ? -1 : 0;
}

int cbq_get_device(PyObject *object, int *device) {
    int64_t value;
    if (cbq_get_int(object, "device", 0, 1023, &value)) return -1;
    *device = (int)value;
    return 0;
}

static int get_pointer(PyObject *object, const char *name, uint64_t *value) {
    if (!PyLong_Check(object) || PyBool_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected an int, got %.100s", name, Py_TYPE(object)->tp_name);
        return -1;
    }
    *value = PyLong_AsUnsignedLongLong(object);
    if (!PyErr_Occurred()) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected an address, got %S", name, object);
    return -1;
}

int cbq_get_stream(PyObject *object, const char *name, cudaStream_t *stream) {
    uint64_t value;
    if (get_pointer(object, name, &value)) return -1;
    *stream = (cudaStream_t)(uintptr_t)value;
    return 0;
}

int cbq_get_address(PyObject *object, uint64_t *address) { return get_pointer(object, "address", address); }

int cbq_get_dtype(PyObject *object, const char *name, int *dtype) {
    static const char *const names[] = {[CBQ_F32] = "float32", [CBQ_F16] = "float16", [CBQ_BF16] = "bfloat16"};
    for (*dtype = 0; PyUnicode_Check(object) && *dtype < 3; ++*dtype)
        if (PyUnicode_CompareWithASCIIString(object, names[*dtype]) == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected float32, float16 or bfloat16, got %R", name, object);
    return -1;
}
