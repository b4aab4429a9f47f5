/* Attention of one token and what belongs to it. */
#include "bind.h"

#include "../ops/attention/indexer.h"

static PyObject *exp_floats(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "out", "isa", NULL};
    PyObject *x, *out;
    const char *isa = NULL;
    const cbq_level *level;
    cbq_view from;
    cbq_out to;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|z", names, &x, &out, &isa)) return NULL;
    if (cbq_get_aligned_view(x, "x", &from) || cbq_get_out(out, "out", &to)) return NULL;
    if (from.bytes != to.bytes || from.bytes % 4) return PyErr_Format(PyExc_ValueError, "out: expected as many float32 as x has");
    if (cbq_use_environment(0) || cbq_get_level(isa, &level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    level->attention->exp((const float *)(const void *)from.data, (float *)(void *)to.data, from.bytes / 4);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *indexer_topk(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"score", "k", "out", "threads", "isa", NULL};
    PyObject *score, *out;
    const char *isa = NULL;
    long long k;
    cbq_topk_args a = {.threads = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLO|iz", names, &score, &k, &out, &a.threads, &isa)) return NULL;
    a.k = k;
    if (cbq_get_array(score, "score", 0, &a.score) || cbq_get_out(out, "out", &a.out) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_use_environment(a.threads == 0) || cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_indexer_topk(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

#define METHOD(name, function, doc) {name, (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS, doc}
PyMethodDef cbq_attention_methods[] = {
    METHOD("exp", exp_floats, "exp(x, out, isa=None): the exponential function of the kernels, on contiguous float32; for tests"),
    METHOD("indexer_topk", indexer_topk, "indexer_topk(score, k, out, threads=0, isa=None): score [rows, n], out int32 [rows, k]"),
    {NULL, NULL, 0, NULL},
};
