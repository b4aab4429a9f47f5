/* quantize. */
#include "bind.h"

#include "../ops/quantize.h"

static PyObject *quantize(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "source", "fmt", "out", "rows", "k", "imatrix", "allow_nonfinite", "threads", "isa", "improve", "out_is_new", NULL};
    PyObject *x, *out, *imatrix = Py_None;
    const char *source, *format, *isa = NULL;
    long long rows, k;
    cbq_quantize_args a = {.threads = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OssOLL|Opizpp", names, &x, &source, &format, &out, &rows, &k, &imatrix,
                                     &a.allow_nonfinite, &a.threads, &isa, &a.improve,
                                     &a.out_is_new)) return NULL;
    if (rows < 0 || k < 0) return PyErr_Format(PyExc_ValueError, "rows, k: expected sizes from 0, got %lld, %lld", rows, k);
    a.rows = rows, a.k = k;
    if (cbq_get_format(format, &a.format) || cbq_get_source(source, &a.source) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_get_aligned_view(x, "x", &a.x) || cbq_get_out(out, "out", &a.out)) return NULL;
    if (imatrix != Py_None && cbq_get_aligned_view(imatrix, "imatrix", &a.importance)) return NULL;
    if (cbq_use_environment(a.threads == 0 && rows * k >= CBQ_QUANTIZE_MIN_PARALLEL)) return NULL;
    if (cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_quantize(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

PyMethodDef cbq_encode_methods[] = {
    {"quantize", (PyCFunction)(void (*)(void))quantize, METH_VARARGS | METH_KEYWORDS,
     "quantize(x, source, fmt, out, rows, k, imatrix=None, allow_nonfinite=False, threads=0, isa=None, improve=False, "
     "out_is_new=False): "
     "encode contiguous rows of the plain type `source`"},
    {NULL, NULL, 0, NULL},
};
