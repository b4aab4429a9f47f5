/* Attention of one token and what belongs to it. */
#include "bind.h"

#include "../ops/attention/gather.h"
#include "../ops/attention/indexer.h"
#include "../ops/attention/mla.h"
#include "../ops/attention/sdpa.h"

/* An array of numbers as C reads them, or nothing for None. */
static int get_optional(PyObject *object, const char *name, cbq_view *view) {
    return object == Py_None ? 0 : cbq_get_aligned_view(object, name, view);
}

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
    static char *names[] = {"score", "k", "out", "threads", "isa", "lengths", NULL};
    PyObject *score, *out, *lengths = Py_None;
    const char *isa = NULL;
    long long k;
    cbq_topk_args a = {.threads = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLO|izO", names, &score, &k, &out, &a.threads, &isa, &lengths)) return NULL;
    a.k = k;
    if (cbq_get_array(score, "score", 0, &a.score) || cbq_get_out(out, "out", &a.out) || cbq_check_threads(a.threads)) return NULL;
    if (get_optional(lengths, "lengths", &a.lengths) || cbq_use_environment(a.threads == 0) || cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_indexer_topk(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *sdpa(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"q", "k", "v", "out", "scale", "sink", "lengths", "indices", "threads", "isa", NULL};
    PyObject *q, *k, *v, *out, *sink = Py_None, *lengths = Py_None, *indices = Py_None;
    const char *isa = NULL;
    cbq_sdpa_args a = {.threads = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOf|OOOiz", names, &q, &k, &v, &out, &a.scale, &sink, &lengths, &indices, &a.threads,
                                     &isa)) return NULL;
    if (cbq_get_array(q, "q", 0, &a.q) || cbq_get_array(k, "k", 0, &a.k) || cbq_get_array(v, "v", 0, &a.v)) return NULL;
    if (cbq_get_array(out, "out", 1, &a.out) || cbq_check_threads(a.threads)) return NULL;
    if (get_optional(sink, "sink", &a.sink) || get_optional(lengths, "lengths", &a.lengths) || get_optional(indices, "indices", &a.indices))
        return NULL;
    if (indices != Py_None) a.lists = PyArray_NDIM((PyArrayObject *)indices) > 1 ? PyArray_DIM((PyArrayObject *)indices, 0) : 1;
    if (cbq_use_environment(a.threads == 0) || cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_sdpa(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *gather_list(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *topk, *n, *window, *out, *counts;
    cbq_gather_args a = {.rows = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTuple(args, "OOOOO", &topk, &n, &window, &out, &counts)) return NULL;
    if (cbq_get_aligned_view(n, "n_kv", &a.n) || cbq_get_aligned_view(window, "window", &a.window)) return NULL;
    if (cbq_get_aligned_view(topk, "topk", &a.topk) || cbq_get_out(out, "out", &a.out) || cbq_get_out(counts, "counts", &a.counts)) return NULL;
    if (PyArray_NDIM((PyArrayObject *)topk) != 2 || PyArray_NDIM((PyArrayObject *)out) != 2)
        return PyErr_Format(PyExc_ValueError, "topk, out: expected two dimensions");
    a.rows = PyArray_DIM((PyArrayObject *)topk, 0), a.chosen = PyArray_DIM((PyArrayObject *)topk, 1);
    a.room = PyArray_DIM((PyArrayObject *)out, 1);
    Py_BEGIN_ALLOW_THREADS
    cbq_gather_list(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *mla(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"q_nope", "q_rope", "w_uk", "ckv", "k_rope", "out", "scale", "threads", "isa", NULL};
    PyObject *q_nope, *q_rope, *w_uk, *ckv, *k_rope, *out;
    const char *isa = NULL;
    cbq_mla_args a = {.threads = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOf|iz", names, &q_nope, &q_rope, &w_uk, &ckv, &k_rope, &out, &a.scale, &a.threads, &isa))
        return NULL;
    if (cbq_get_array(q_nope, "q_nope", 0, &a.q_nope) || cbq_get_array(q_rope, "q_rope", 0, &a.q_rope)) return NULL;
    if (cbq_get_array(w_uk, "w_uk", 0, &a.w_uk) || cbq_get_array(ckv, "ckv", 0, &a.ckv) || cbq_get_array(k_rope, "k_rope", 0, &a.k_rope)) return NULL;
    if (cbq_get_array(out, "out", 1, &a.out) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_use_environment(a.threads == 0) || cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_mla(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static int get_index_inputs(PyObject *q, PyObject *k, PyObject *w, const char *isa, cbq_index_inputs *in) {
    if (cbq_get_array(q, "q", 0, &in->q) || cbq_get_array(k, "k", 0, &in->k) || cbq_get_array(w, "w", 0, &in->w)) return -1;
    if (cbq_check_threads(in->threads) || cbq_use_environment(in->threads == 0)) return -1;
    return cbq_get_level(isa, &in->level);
}

static PyObject *indexer_score(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"q", "k", "w", "out", "threads", "isa", NULL};
    PyObject *q, *k, *w, *object;
    const char *isa = NULL;
    cbq_index_inputs in = {.threads = 0};
    cbq_array out;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|iz", names, &q, &k, &w, &object, &in.threads, &isa)) return NULL;
    if (get_index_inputs(q, k, w, isa, &in) || cbq_get_array(object, "out", 1, &out)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_indexer_score(&in, &out, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *indexer_select(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"q", "k", "w", "topk", "out", "threads", "isa", "lengths", NULL};
    PyObject *q, *k, *w, *object, *lengths = Py_None;
    const char *isa = NULL;
    long long topk;
    cbq_index_inputs in = {.threads = 0};
    cbq_out out;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOLO|izO", names, &q, &k, &w, &topk, &object, &in.threads, &isa, &lengths)) return NULL;
    if (get_index_inputs(q, k, w, isa, &in) || get_optional(lengths, "lengths", &in.lengths) || cbq_get_out(object, "out", &out)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_indexer_select(&in, topk, &out, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

#define METHOD(name, function, doc) {name, (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS, doc}
PyMethodDef cbq_attention_methods[] = {
    METHOD("exp", exp_floats, "exp(x, out, isa=None): the exponential function of the kernels, on contiguous float32; for tests"),
    METHOD("indexer_topk", indexer_topk, "indexer_topk(score, k, out, threads=0, isa=None, lengths=None): score [rows, n], out int32 [rows, k], "
           "lengths int64 [rows]"),
    METHOD("sdpa", sdpa, "sdpa(q, k, v, out, scale, sink=None, lengths=None, indices=None, threads=0, isa=None): q [B, H, D], k [B, Hkv, n, D], "
           "v [B, Hkv, n, Dv], out [B, H, Dv]; sink float32 [H], lengths int64 [B], indices int64 [lists, selected]"),
    METHOD("mla", mla, "mla(q_nope, q_rope, w_uk, ckv, k_rope, out, scale, threads=0, isa=None): q_nope [H, d], q_rope [H, r], w_uk [H, d, R], "
           "ckv [n, R], k_rope [n, r], out [H, R]"),
    METHOD("indexer_score", indexer_score, "indexer_score(q, k, w, out, threads=0, isa=None): q [B, H, D], k [n, D] or [n, H, D], w [B, H], "
           "out float32 [B, n]"),
    METHOD("indexer_select", indexer_select, "indexer_select(q, k, w, topk, out, threads=0, isa=None, lengths=None): as indexer_score, "
           "out int32 [B, topk], lengths int64 [B]"),
    {"gather_list", gather_list, METH_VARARGS,
     "gather_list(topk, n, window, out, counts): topk int64 [rows, k], n, window and counts int64 [rows], out int32 [rows, room], which is left "
     "alone where a count is more than its room"},
    {NULL, NULL, 0, NULL},
};
