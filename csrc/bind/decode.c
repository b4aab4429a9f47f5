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

static int find_format(const char *name, int *format) {
    *format = cbq_find_format(name);
    if (*format >= 0) return 0;
    PyErr_Format(PyExc_ValueError, "fmt: unknown format '%.60s'", name);
    return -1;
}

static int find_dtype(const char *name, int *dtype) {
    if (strcmp(name, "float32") == 0) *dtype = CBQ_F32;
    else if (strcmp(name, "float16") == 0) *dtype = CBQ_F16;
    else if (strcmp(name, "bfloat16") == 0) *dtype = CBQ_BF16;
    else {
        PyErr_Format(PyExc_ValueError, "dtype: expected float32, float16 or bfloat16, got '%.60s'", name);
        return -1;
    }
    return 0;
}

static int check_threads(int threads) {
    if (threads >= 0 && threads <= CBQ_MAX_THREADS) return 0;
    PyErr_Format(PyExc_ValueError, "threads: expected 1 to %d, got %d", CBQ_MAX_THREADS, threads);
    return -1;
}

static PyObject *dequant(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"src", "fmt", "dst", "dtype", "threads", "isa", "stream", NULL};
    PyObject *src, *dst;
    const char *format, *dtype = "float32", *isa = NULL;
    cbq_dequant_args a = {.threads = 0, .stream = -1};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsO|sizi", names, &src, &format, &dst, &dtype, &a.threads, &isa, &a.stream)) return NULL;
    if (find_format(format, &a.format) || find_dtype(dtype, &a.dtype) || check_threads(a.threads)) return NULL;
    if (cbq_get_view(src, "buf", &a.blocks) || cbq_get_out(dst, "out", &a.out)) return NULL;
    if (cbq_use_environment(a.threads == 0)) return NULL;
    a.level = isa ? cbq_find_level(isa, &st) : cbq_current_level();
    if (!a.level) return cbq_raise(&st);
    Py_BEGIN_ALLOW_THREADS
    cbq_dequant(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
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
    if (find_format(name, &format) || check_threads(threads)) return NULL;
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
    {"nonfinite", nonfinite, METH_VARARGS, "nonfinite(src, fmt, mask, threads=0): mark blocks whose scales are not finite"},
    {NULL, NULL, 0, NULL},
};
