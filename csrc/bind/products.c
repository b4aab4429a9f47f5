/* matmul. */
#include "bind.h"

#include "../ops/matmul.h"

static const char *const precisions[] = {
    [CBQ_PRECISION_F32] = "f32", [CBQ_PRECISION_BF16] = "bf16", [CBQ_PRECISION_Q8] = "q8", [CBQ_PRECISION_Q16] = "q16"};

static int get_precision(const char *name, int *precision) {
    for (*precision = 0; *precision < (int)(sizeof precisions / sizeof *precisions); ++*precision)
        if (strcmp(name, precisions[*precision]) == 0) return 0;
    PyErr_Format(PyExc_ValueError, "precision: expected f32, bf16, q8 or q16, got '%.60s'", name);
    return -1;
}

PyObject *cbq_bind_matmul(cbq_matmul_args *a, PyObject *x, const char *dtype, PyObject *out, const char *out_dtype, const char *precision,
                          const char *isa) {
    cbq_status st = {CBQ_OK, ""};
    if (a->m < 0 || a->n < 0 || a->k < 0)
        return PyErr_Format(PyExc_ValueError, "m, n, k: expected sizes from 0, got %lld, %lld, %lld", (long long)a->m, (long long)a->n,
                            (long long)a->k);
    if (cbq_get_dtype(dtype, &a->dtype) || cbq_get_dtype(out_dtype, &a->out_dtype)) return NULL;
    if (get_precision(precision, &a->precision) || cbq_check_threads(a->threads)) return NULL;
    if (cbq_get_view(x, "x", &a->x) || cbq_get_out(out, "out", &a->out)) return NULL;
    if (cbq_use_environment(a->threads == 0 && cbq_matmul_is_large(a->m, a->n, a->k))) return NULL;
    if (cbq_get_level(isa, &a->level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_matmul(a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *matmul(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "dtype", "w", "fmt", "out", "out_dtype", "m", "n", "k", "precision", "threads", "isa", NULL};
    PyObject *x, *w, *out;
    const char *dtype, *format, *out_dtype, *precision = "f32", *isa = NULL;
    long long m, n, k;
    cbq_matmul_args a = {.threads = 0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsOsOsLLL|s" "iz", names, &x, &dtype, &w, &format, &out, &out_dtype, &m, &n, &k,
                                     &precision, &a.threads, &isa)) return NULL;
    a.m = m, a.n = n, a.k = k;
    if (cbq_get_format(format, &a.format) || cbq_get_view(w, "w", &a.w)) return NULL;
    return cbq_bind_matmul(&a, x, dtype, out, out_dtype, precision, isa);
}

PyMethodDef cbq_product_methods[] = {
    {"matmul", (PyCFunction)(void (*)(void))matmul, METH_VARARGS | METH_KEYWORDS,
     "matmul(x, dtype, w, fmt, out, out_dtype, m, n, k, precision='f32', threads=0, isa=None): out[m, n] = x[m, k] w[n, k]^T, all contiguous"},
    {NULL, NULL, 0, NULL},
};
