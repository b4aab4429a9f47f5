/* Attention of one token and what belongs to it. */
#include "bind.h"

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

PyMethodDef cbq_attention_methods[] = {
    {"exp", (PyCFunction)(void (*)(void))exp_floats, METH_VARARGS | METH_KEYWORDS,
     "exp(x, out, isa=None): the exponential function of the kernels, on contiguous float32; for tests"},
    {NULL, NULL, 0, NULL},
};
