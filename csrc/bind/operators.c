/* The operators of cbquant.deepseek that work element by element. */
#include "../ops/operators/operators.h"

#include "bind.h"

static int get_how(int threads, const char *isa, int stream, cbq_how *how) {
    how->threads = threads, how->stream = stream;
    if (cbq_check_threads(threads) || cbq_use_environment(threads == 0)) return -1;
    return cbq_get_level(isa, &how->level);
}

static PyObject *vector_add(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"a", "b", "out", "threads", "isa", "stream", NULL};
    PyObject *a, *b, *out;
    const char *isa = NULL;
    int threads = 0, stream = -1;
    cbq_vector_add_args t;
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|izi", names, &a, &b, &out, &threads, &isa, &stream)) return NULL;
    if (cbq_get_array(a, "a", 0, &t.a) || cbq_get_array(b, "b", 0, &t.b) || cbq_get_array(out, "out", 1, &t.out)) return NULL;
    if (get_how(threads, isa, stream, &t.how)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_vector_add(&t, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

#define METHOD(name, doc) {#name, (PyCFunction)(void (*)(void))name, METH_VARARGS | METH_KEYWORDS, doc}
PyMethodDef cbq_operator_methods[] = {
    METHOD(vector_add, "vector_add(a, b, out, threads=0, isa=None, stream=-1): float32, float16 or bfloat16 (as uint16), each at its own strides"),
    {NULL, NULL, 0, NULL},
};
