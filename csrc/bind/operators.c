/* The operators of cbquant.deepseek that work element by element. */
#include "../ops/operators/operators.h"

#include "bind.h"

/* The last arguments of each of these functions. */
typedef struct {
    int threads, stream;
    const char *isa;
} how_words;
/* Looking for a variable takes as long as a small operator: it is done where there may be work for threads. */
enum { NEEDS_NO_THREADS = 1 << 13 };
static int get_how(const how_words *words, int64_t work, cbq_how *how) {
    how->threads = words->threads, how->stream = words->stream;
    if (cbq_check_threads(words->threads) || cbq_use_environment(words->threads == 0 && work >= NEEDS_NO_THREADS)) return -1;
    return cbq_get_level(words->isa, &how->level);
}

typedef struct {
    PyObject *object;
    const char *name;
    int writable;
    cbq_array *array;
} operand;
static int get_arrays(const operand *operands, int n) {
    for (int i = 0; i < n; i++)
        if (cbq_get_array(operands[i].object, operands[i].name, operands[i].writable, operands[i].array)) return -1;
    return 0;
}
#define GET_ARRAYS(...) get_arrays((const operand[]){__VA_ARGS__}, (int)(sizeof((const operand[]){__VA_ARGS__}) / sizeof(operand)))

static PyObject *done(const cbq_status *st) {
    if (st->code) return cbq_raise(st);
    Py_RETURN_NONE;
}

static PyObject *vector_add(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"a", "b", "out", "threads", "isa", "stream", NULL};
    PyObject *a, *b, *out;
    how_words how = {0, -1, NULL};
    cbq_vector_add_args t;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|izi", names, &a, &b, &out, &how.threads, &how.isa, &how.stream)) return NULL;
    if (GET_ARRAYS({a, "a", 0, &t.a}, {b, "b", 0, &t.b}, {out, "out", 1, &t.out}) || get_how(&how, cbq_elements(&t.a), &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_vector_add(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static int get_scoring(const char *name, int *scoring) {
    if (strcmp(name, "sqrtsoftplus") == 0) *scoring = CBQ_SQRTSOFTPLUS;
    else if (strcmp(name, "sigmoid") == 0) *scoring = CBQ_SIGMOID;
    else {
        PyErr_Format(PyExc_ValueError, "scoring: expected sqrtsoftplus or sigmoid, got '%.60s'", name);
        return -1;
    }
    return 0;
}

static PyObject *router(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"logits", "bias", "unbiased", "biased", "scoring", "threads", "isa", NULL};
    PyObject *logits, *bias, *unbiased, *biased;
    const char *scoring = "sqrtsoftplus";
    how_words how = {0, -1, NULL};
    cbq_router_args t;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|s" "iz", names, &logits, &bias, &unbiased, &biased, &scoring, &how.threads,
                                     &how.isa)) return NULL;
    if (GET_ARRAYS({logits, "logits", 0, &t.logits}, {bias, "bias", 0, &t.bias}, {unbiased, "out[0]", 1, &t.unbiased},
                   {biased, "out[1]", 1, &t.biased})) return NULL;
    if (get_scoring(scoring, &t.scoring) || get_how(&how, cbq_elements(&t.logits), &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_router(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *route(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"logits", "bias", "ids", "weights", "k", "scale", "normalize", "scoring", "threads", "isa", NULL};
    PyObject *logits, *bias, *ids, *weights;
    const char *scoring = "sqrtsoftplus";
    long long k;
    how_words how = {0, -1, NULL};
    cbq_route_args t = {.scale = 1};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOL|fpsiz", names, &logits, &bias, &ids, &weights, &k, &t.scale, &t.normalize, &scoring,
                                     &how.threads, &how.isa)) return NULL;
    if (GET_ARRAYS({logits, "logits", 0, &t.logits}, {bias, "bias", 0, &t.bias}, {weights, "out[1]", 1, &t.weights})) return NULL;
    if (cbq_get_int32(ids, "out[0]", &t.ids) || get_scoring(scoring, &t.scoring) || get_how(&how, cbq_elements(&t.logits), &t.how)) return NULL;
    t.k = k;
    Py_BEGIN_ALLOW_THREADS
    cbq_route(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *compressor_pool(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"gate", "kv", "ape", "out", "ape_on_gate", "threads", "isa", NULL};
    PyObject *gate, *kv, *ape, *out;
    how_words how = {0, -1, NULL};
    cbq_pool_args t = {.ape_on_gate = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|piz", names, &gate, &kv, &ape, &out, &t.ape_on_gate, &how.threads, &how.isa)) return NULL;
    if (GET_ARRAYS({gate, "gate", 0, &t.gate}, {kv, "kv", 0, &t.kv}, {ape, "ape", 0, &t.ape}, {out, "out", 1, &t.out})) return NULL;
    if (get_how(&how, cbq_elements(&t.kv), &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_pool(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *mhc_sinkhorn_split(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"mix", "scale", "base", "pre", "post", "comb", "iters", "eps", "ends_with_columns", "src_first", "threads", "isa", NULL};
    PyObject *mix, *scale, *base, *pre, *post, *comb;
    how_words how = {0, -1, NULL};
    cbq_sinkhorn_args t = {.iters = 20, .eps = 1e-6};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOO|idppiz", names, &mix, &scale, &base, &pre, &post, &comb, &t.iters, &t.eps,
                                     &t.ends_with_columns, &t.src_first, &how.threads, &how.isa)) return NULL;
    if (GET_ARRAYS({mix, "mix", 0, &t.mix}, {scale, "scale", 0, &t.scale}, {base, "base", 0, &t.base})) return NULL;
    if (GET_ARRAYS({pre, "out[0]", 1, &t.pre}, {post, "out[1]", 1, &t.post}, {comb, "out[2]", 1, &t.comb})) return NULL;
    if (get_how(&how, cbq_elements(&t.mix) * t.iters, &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_sinkhorn_split(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *mhc_collapse(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"pre", "h", "out", "threads", "isa", "stream", NULL};
    PyObject *pre, *h, *out;
    how_words how = {0, -1, NULL};
    cbq_collapse_args t;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|izi", names, &pre, &h, &out, &how.threads, &how.isa, &how.stream)) return NULL;
    if (GET_ARRAYS({pre, "pre", 0, &t.pre}, {h, "h", 0, &t.h}, {out, "out", 1, &t.out}) || get_how(&how, cbq_elements(&t.h), &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_collapse(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *mhc_expand(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"block_out", "post", "comb", "residual", "out", "src_first", "threads", "isa", "stream", NULL};
    PyObject *block_out, *post, *comb, *residual, *out;
    how_words how = {0, -1, NULL};
    cbq_expand_args t = {.src_first = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO|pizi", names, &block_out, &post, &comb, &residual, &out, &t.src_first, &how.threads,
                                     &how.isa, &how.stream)) return NULL;
    if (GET_ARRAYS({block_out, "block_out", 0, &t.block_out}, {post, "post", 0, &t.post}, {comb, "comb", 0, &t.comb},
                   {residual, "residual", 0, &t.residual}, {out, "out", 1, &t.out}) || get_how(&how, cbq_elements(&t.residual), &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_expand(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *partial_rope(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "positions", "out", "n_rot", "theta", "inverse", "neighbours", "threads", "isa", "stream", "frequencies",
                            NULL};
    PyObject *x, *positions, *out, *frequencies = Py_None;
    long long n_rot = 64;
    how_words how = {0, -1, NULL};
    cbq_rope_args t = {.theta = 10000};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|LdppiziO", names, &x, &positions, &out, &n_rot, &t.theta, &t.inverse, &t.neighbours,
                                     &how.threads, &how.isa, &how.stream, &frequencies)) return NULL;
    if (GET_ARRAYS({x, "x", 0, &t.x}, {out, "out", 1, &t.out}) || cbq_get_aligned_view(positions, "positions", &t.positions)) return NULL;
    if (frequencies != Py_None && cbq_get_aligned_view(frequencies, "frequencies", &t.frequencies)) return NULL;
    if (get_how(&how, cbq_elements(&t.x), &t.how)) return NULL;
    t.n_rot = n_rot;
    Py_BEGIN_ALLOW_THREADS
    cbq_rope(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

static PyObject *swiglu(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"gate", "up", "out", "threads", "isa", NULL};
    PyObject *gate, *up, *out;
    how_words how = {0, -1, NULL};
    cbq_swiglu_args t;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|iz", names, &gate, &up, &out, &how.threads, &how.isa)) return NULL;
    if (GET_ARRAYS({gate, "gate", 0, &t.gate}, {up, "up", 0, &t.up}, {out, "out", 1, &t.out})) return NULL;
    if (get_how(&how, cbq_elements(&t.gate), &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_swiglu(&t, &st);
    Py_END_ALLOW_THREADS
    return done(&st);
}

#define METHOD(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_VARARGS | METH_KEYWORDS, doc}
PyMethodDef cbq_operator_methods[] = {
    METHOD(vector_add, "vector_add(a, b, out, threads=0, isa=None, stream=-1): here and below arrays are float32, float16 or uint16 (which "
                       "stands for bfloat16), and of any strides but that of their last axis"),
    METHOD(router, "router(logits, bias, unbiased, biased, scoring='sqrtsoftplus', threads=0, isa=None): the last two arrays are written"),
    METHOD(route, "route(logits, bias, ids, weights, k, scale=1.0, normalize=False, scoring='sqrtsoftplus', threads=0, isa=None): ids (int32, "
                  "C-contiguous) and weights are written"),
    METHOD(compressor_pool, "compressor_pool(gate, kv, ape, out, ape_on_gate=False, threads=0, isa=None)"),
    METHOD(mhc_sinkhorn_split, "mhc_sinkhorn_split(mix, scale, base, pre, post, comb, iters=20, eps=1e-6, ends_with_columns=False, src_first=False, "
                               "threads=0, isa=None): the three after base are written"),
    METHOD(mhc_collapse, "mhc_collapse(pre, h, out, threads=0, isa=None, stream=-1): any strides"),
    METHOD(mhc_expand, "mhc_expand(block_out, post, comb, residual, out, src_first=False, threads=0, isa=None, stream=-1): any strides"),
    METHOD(partial_rope, "partial_rope(x, positions, out, n_rot=64, theta=10000.0, inverse=False, neighbours=False, threads=0, isa=None, "
                         "stream=-1, frequencies=None): positions and frequencies are contiguous float64; out has the dtype of x, and may be x"),
    METHOD(swiglu, "swiglu(gate, up, out, threads=0, isa=None): C-contiguous float32; out may be one of the others"),
    {NULL, NULL, 0, NULL},
};
