/* The environment variables, from os.environ: getenv would race with a thread that sets another variable, and what holds
   the GIL for us is not there in every build. */
#include "bind.h"

#include <stdatomic.h>

#include "../dispatch.h"
#include "../threads.h"

/* The value as UTF-8 in a new bytes object, None where it is not set or empty; NULL with an exception. */
static PyObject *read_variable(PyObject *environ, const char *name) {
    PyObject *value = PyObject_CallMethod(environ, "get", "ss", name, "");
    if (!value) return NULL;
    PyObject *bytes = PyObject_IsTrue(value) ? PyUnicode_AsEncodedString(value, "utf-8", "surrogateescape") : Py_NewRef(Py_None);
    Py_DECREF(value);
    return bytes;
}

static int apply(PyObject *environ, const char *name, cbq_code (*use)(const char *text, cbq_status *st)) {
    PyObject *value = read_variable(environ, name);
    cbq_status st = {CBQ_OK, ""};
    if (!value) return -1;
    if (use(value == Py_None ? NULL : PyBytes_AS_STRING(value), &st)) cbq_raise(&st);
    Py_DECREF(value);
    return st.code ? -1 : 0;
}

int cbq_use_environment(int needs_threads) {
    static atomic_int done;
    int first = !atomic_load(&done);
    if (!first && !needs_threads) return 0;
    PyObject *os = PyImport_ImportModule("os"), *environ = os ? PyObject_GetAttrString(os, "environ") : NULL;
    int failed = !environ || (first && apply(environ, "CBQUANT_ISA", cbq_use_level)) || apply(environ, "CBQUANT_NUM_THREADS", cbq_use_num_threads);
    Py_XDECREF(environ);
    Py_XDECREF(os);
    if (!failed) atomic_store(&done, 1);
    return failed ? -1 : 0;
}
