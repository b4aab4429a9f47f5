/* The format list, its tables, dequant and nonfinite. */
#include "bind.h"

#include "../ops/dequant.h"
#include "../threads.h"

#include "../tables/iq1_grid8.h"
#include "../tables/iq2_s_grid.h"
#include "../tables/iq2_xs_grid.h"
#include "../tables/iq2_xxs_grid.h"
#include "../tables/iq3_s_grid.h"
#include "../tables/iq3_xxs_grid.h"

static const char *const kind_names[] = {
    [CBQ_KIND_LINEAR] = "linear", [CBQ_KIND_TABLE] = "table", [CBQ_KIND_SIGNED] = "signed", [CBQ_KIND_PLAIN] = "plain"};

static PyObject *formats(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    PyObject *list = PyList_New(cbq_n_formats);
    for (int i = 0; list && i < cbq_n_formats; i++) {
        const cbq_format *f = &cbq_formats[i];
        PyObject *row = Py_BuildValue("(siiisiOOs)", f->name, f->tag, f->elements, f->bytes, kind_names[f->kind], f->group,
                                      f->has_min ? Py_True : Py_False, f->needs_imatrix ? Py_True : Py_False, f->doc);
        if (!row) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, row);
    }
    return list;
}

static PyObject *copied_array(const void *data, int type, npy_intp rows, npy_intp columns) {
    npy_intp dims[2] = {rows, columns};
    PyObject *array = PyArray_SimpleNew(2, dims, type);
    if (array) memcpy(PyArray_DATA((PyArrayObject *)array), data, (size_t)(rows * columns));
    return array;
}

/* The grid of iq1_s and iq1_m is kept times 8. */
static PyObject *iq1_values(void) {
    PyObject *array = copied_array(cbq_iq1_grid8, NPY_INT8, sizeof cbq_iq1_grid8 / 8, 8);
    int8_t *values = array ? PyArray_DATA((PyArrayObject *)array) : NULL;
    for (size_t i = 0; values && i < sizeof cbq_iq1_grid8; i++) values[i] /= 8;
    return array;
}

static PyObject *table(PyObject *module, PyObject *name_object) {
    (void)module;
    const char *name = PyUnicode_AsUTF8(name_object);
    if (!name) return NULL;
#define GRID(n, data, type, columns) if (strcmp(name, n) == 0) return copied_array(data, type, sizeof data / columns, columns)
    GRID("iq2_xxs_grid", cbq_iq2_xxs_grid, NPY_UINT8, 8);
    GRID("iq2_xs_grid", cbq_iq2_xs_grid, NPY_UINT8, 8);
    GRID("iq2_s_grid", cbq_iq2_s_grid, NPY_UINT8, 8);
    GRID("iq3_xxs_grid", cbq_iq3_xxs_grid, NPY_UINT8, 4);
    GRID("iq3_s_grid", cbq_iq3_s_grid, NPY_UINT8, 4);
#undef GRID
    if (strcmp(name, "iq1_s_grid") == 0) return iq1_values();
    return PyErr_Format(PyExc_ValueError, "name: there is no table '%.60s'", name);
}

/* A small call does not ask for the number of threads: looking at the environment takes longer than its work. */
static int use_environment(const cbq_dequant_args *a) {
    const cbq_format *f = &cbq_formats[a->format];
    return cbq_use_environment(a->threads == 0 && a->blocks.bytes / f->bytes * f->elements >= CBQ_DEQUANT_MIN_PARALLEL);
}

static PyObject *dequant(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"src", "fmt", "dst", "dtype", "threads", "isa", "stream", NULL};
    PyObject *src, *dst;
    const char *format, *dtype = "float32", *isa = NULL;
    cbq_dequant_args a = {.threads = 0, .stream = -1};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsO|sizi", names, &src, &format, &dst, &dtype, &a.threads, &isa, &a.stream)) return NULL;
    if (cbq_get_format(format, &a.format) || cbq_get_dtype(dtype, &a.dtype) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_get_view(src, "buf", &a.blocks) || cbq_get_out(dst, "out", &a.out)) return NULL;
    if (use_environment(&a)) return NULL;
    if (cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_dequant(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

/* ---- the common call, without a detour through Python ---- */

/* The shape that decoding gives: [..., K] for an array whose last axis is whole blocks. */
static int decoded_shape(PyArrayObject *src, const cbq_format *f, npy_intp *dims) {
    int last = PyArray_NDIM(src) - 1;
    npy_intp row = last < 0 ? 0 : PyArray_DIM(src, last);
    if (last < 0 || row % f->bytes || row / f->bytes > PTRDIFF_MAX / 8 / f->elements) return 0;
    memcpy(dims, PyArray_DIMS(src), (size_t)last * sizeof *dims);
    dims[last] = row / f->bytes * f->elements;
    return 1;
}

/* Exactly an ndarray (no subclass) of that type, contiguous and in native byte order. */
static int is_simple(PyObject *object, int type) {
    if (!PyArray_CheckExact(object)) return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_TYPE(array) == type && PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISNOTSWAPPED(array);
}

static int is_simple_out(PyObject *object, int ndim, const npy_intp *dims) {
    if (!is_simple(object, NPY_FLOAT32) || !PyArray_ISWRITEABLE((PyArrayObject *)object)) return 0;
    return PyArray_NDIM((PyArrayObject *)object) == ndim && PyArray_CompareLists(PyArray_DIMS((PyArrayObject *)object), dims, ndim);
}

/* None, an int from 1 up; anything else is not simple. */
static int simple_threads(PyObject *object, int *threads) {
    *threads = 0;
    if (object == Py_None) return 1;
    if (!PyLong_CheckExact(object)) return 0;
    long n = PyLong_AsLong(object);
    if (n == -1 && PyErr_Occurred()) PyErr_Clear();
    *threads = (int)n;
    return n >= 1 && n <= CBQ_MAX_THREADS;
}

static PyObject *dequant_simple(PyObject *module, PyObject *const *args, Py_ssize_t n_args) {
    (void)module;
    if (n_args != 4) return PyErr_Format(PyExc_TypeError, "expected 4 arguments, got %zd", n_args);
    PyObject *src = args[0], *out = args[2];
    npy_intp dims[NPY_MAXDIMS];
    cbq_dequant_args a = {.dtype = CBQ_F32, .stream = out == Py_None ? 0 : -1}; /* see _api.py for new memory */
    cbq_status st = {CBQ_OK, ""};
    if (!is_simple(src, NPY_UINT8) || !PyUnicode_CheckExact(args[1]) || !simple_threads(args[3], &a.threads)) Py_RETURN_NONE;
    const char *name = PyUnicode_AsUTF8(args[1]);
    if (!name) PyErr_Clear();
    a.format = name ? cbq_find_format(name) : -1;
    if (a.format < 0 || !decoded_shape((PyArrayObject *)src, &cbq_formats[a.format], dims)) Py_RETURN_NONE;
    int ndim = PyArray_NDIM((PyArrayObject *)src);
    if (out != Py_None && !is_simple_out(out, ndim, dims)) Py_RETURN_NONE;
    if (cbq_get_view(src, "buf", &a.blocks) || use_environment(&a)) return NULL;
    a.level = cbq_current_level();
    PyObject *result = out == Py_None ? PyArray_SimpleNew(ndim, dims, NPY_FLOAT32) : Py_NewRef(out);
    if (!result || cbq_get_out(result, "out", &a.out)) {
        Py_XDECREF(result);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    cbq_dequant(&a, &st);
    Py_END_ALLOW_THREADS
    if (!st.code) return result;
    Py_DECREF(result);
    return cbq_raise(&st);
}

static PyObject *nonfinite(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *src, *mask;
    const char *name;
    int format, threads = 0;
    cbq_view blocks;
    cbq_out out;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTuple(args, "OsO|i", &src, &name, &mask, &threads)) return NULL;
    if (cbq_get_format(name, &format) || cbq_check_threads(threads)) return NULL;
    if (cbq_get_view(src, "buf", &blocks) || cbq_get_out(mask, "mask", &out)) return NULL;
    if (cbq_use_environment(threads == 0)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_nonfinite(format, blocks, out, threads, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

PyMethodDef cbq_decode_methods[] = {
    {"formats", formats, METH_NOARGS, "formats() -> list of (name, tag, elements, bytes, kind, group, has_min, needs_imatrix, doc)"},
    {"table", table, METH_O, "table(name) -> a copy of a grid, rows x values"},
    {"dequant", (PyCFunction)(void (*)(void))dequant, METH_VARARGS | METH_KEYWORDS,
     "dequant(src, fmt, dst, dtype='float32', threads=0, isa=None, stream=-1): decode contiguous blocks into a contiguous array"},
    {"dequant_simple", (PyCFunction)(void (*)(void))dequant_simple, METH_FASTCALL,
     "dequant_simple(src, fmt, out, threads) -> out or a new array; None where the arguments are anything but simple, so that "
     "the general way must look at them: a contiguous uint8 array, a float32 array of the right shape or None, an int or None"},
    {"nonfinite", nonfinite, METH_VARARGS, "nonfinite(src, fmt, mask, threads=0): mark blocks whose scales are not finite"},
    {NULL, NULL, 0, NULL},
};
