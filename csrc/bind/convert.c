/* Arguments to views, errors to exceptions. */
#include "bind.h"

#include "../base.h"
#include "../registry.h"
#include "../threads.h"

PyObject *cbq_raise(const cbq_status *st) {
    PyObject *type = st->code == CBQ_BAD_TYPE ? PyExc_TypeError : st->code == CBQ_NO_MEMORY ? PyExc_MemoryError : PyExc_ValueError;
    /* A text may quote what came from outside, and be cut in the middle of a character. */
    PyObject *text = PyUnicode_DecodeUTF8(st->text, (Py_ssize_t)strlen(st->text), "backslashreplace");
    if (text) PyErr_SetObject(type, text);
    Py_XDECREF(text);
    return NULL;
}

static PyArrayObject *contiguous_array(PyObject *object, const char *name) {
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a NumPy array, got %.100s", name, Py_TYPE(object)->tp_name);
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyDataType_REFCHK(PyArray_DESCR(array))) {
        PyErr_Format(PyExc_TypeError, "%s: expected an array of numbers, got one of Python objects", name);
        return NULL;
    }
    if (!PyArray_IS_C_CONTIGUOUS(array)) {
        PyErr_Format(PyExc_ValueError, "%s: expected a C-contiguous array, got a strided one", name);
        return NULL;
    }
    return array;
}

int cbq_get_view(PyObject *object, const char *name, cbq_view *view) {
    PyArrayObject *array = contiguous_array(object, name);
    if (!array) return -1;
    view->data = PyArray_DATA(array);
    view->bytes = (int64_t)PyArray_NBYTES(array);
    return 0;
}

int cbq_get_out(PyObject *object, const char *name, cbq_out *out) {
    PyArrayObject *array = contiguous_array(object, name);
    if (!array) return -1;
    if (!PyArray_ISWRITEABLE(array)) {
        PyErr_Format(PyExc_ValueError, "%s: expected a writable array, got a read-only one", name);
        return -1;
    }
    out->data = PyArray_DATA(array);
    out->bytes = (int64_t)PyArray_NBYTES(array);
    return 0;
}

/* CBQ_F32 .. of a dtype, -1 of others. */
static int float_type(PyArrayObject *array) {
    if (!PyArray_ISNOTSWAPPED(array)) return -1;
    switch (PyArray_TYPE(array)) {
    case NPY_FLOAT: return CBQ_F32;
    case NPY_HALF: return CBQ_F16;
    case NPY_USHORT: return CBQ_BF16;
    default: return -1;
    }
}

int cbq_get_array(PyObject *object, const char *name, int writable, cbq_array *to) {
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a NumPy array, got %.100s", name, Py_TYPE(object)->tp_name);
        return -1;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    to->data = PyArray_DATA(array), to->ndim = PyArray_NDIM(array), to->dtype = float_type(array);
    if (to->dtype < 0) {
        PyErr_Format(PyExc_TypeError, "%s: expected float32, float16 or uint16, got dtype %S", name, (PyObject *)PyArray_DESCR(array));
        return -1;
    }
    if (to->ndim > CBQ_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s: expected at most %d dimensions, got %d", name, CBQ_MAX_DIMS, to->ndim);
        return -1;
    }
    if (writable && !PyArray_ISWRITEABLE(array)) {
        PyErr_Format(PyExc_ValueError, "%s: expected a writable array, got a read-only one", name);
        return -1;
    }
    for (int i = 0; i < to->ndim; i++) to->shape[i] = PyArray_DIM(array, i), to->strides[i] = PyArray_STRIDE(array, i);
    return 0;
}

int cbq_get_int32(PyObject *object, const char *name, cbq_out *out) {
    if (cbq_get_out(object, name, out)) return -1;
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyArray_TYPE(array) == NPY_INT32 && PyArray_ISBEHAVED(array)) return 0;
    PyErr_Format(PyExc_TypeError, "%s: expected aligned int32, got dtype %S", name, (PyObject *)PyArray_DESCR(array));
    return -1;
}

int cbq_get_format(const char *name, int *format) {
    *format = cbq_find_format(name);
    if (*format >= 0) return 0;
    PyErr_Format(PyExc_ValueError, "fmt: unknown format '%.60s'", name);
    return -1;
}

int cbq_get_dtype(const char *name, int *dtype) {
    if (strcmp(name, "float32") == 0) *dtype = CBQ_F32;
    else if (strcmp(name, "float16") == 0) *dtype = CBQ_F16;
    else if (strcmp(name, "bfloat16") == 0) *dtype = CBQ_BF16;
    else {
        PyErr_Format(PyExc_ValueError, "dtype: expected float32, float16 or bfloat16, got '%.60s'", name);
        return -1;
    }
    return 0;
}

int cbq_get_aligned_view(PyObject *object, const char *name, cbq_view *view) {
    if (cbq_get_view(object, name, view)) return -1;
    if (PyArray_ISALIGNED((PyArrayObject *)object)) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected an aligned array", name);
    return -1;
}

int cbq_get_source(const char *name, int *format) {
    if (cbq_get_format(name, format)) return -1;
    if (cbq_formats[*format].kind == CBQ_KIND_PLAIN) return 0;
    PyErr_Format(PyExc_ValueError, "source: '%s' is not a plain type", name);
    return -1;
}

int cbq_get_level(const char *name, const cbq_level **level) {
    cbq_status st = {CBQ_OK, ""};
    *level = name ? cbq_find_level(name, &st) : cbq_current_level();
    if (*level) return 0;
    cbq_raise(&st);
    return -1;
}

int cbq_check_threads(int threads) {
    if (threads >= 0 && threads <= CBQ_MAX_THREADS) return 0;
    PyErr_Format(PyExc_ValueError, "threads: expected 1 to %d, got %d", CBQ_MAX_THREADS, threads);
    return -1;
}
