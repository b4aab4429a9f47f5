/* The machine: instruction sets, cores, threads. */
#include "bind.h"

#include "../cpu.h"
#include "../dispatch.h"
#include "../threads.h"

static PyObject *isa_levels(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    PyObject *list = PyList_New(cbq_n_levels);
    for (int i = 0; list && i < cbq_n_levels; i++) {
        const cbq_level *level = &cbq_levels[i];
        PyObject *row = Py_BuildValue("(sOs)", level->name, cbq_level_available(level) ? Py_True : Py_False, level->kernels_name);
        if (!row) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, row);
    }
    return list;
}

static PyObject *isa(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    return cbq_use_environment(0) ? NULL : PyUnicode_FromString(cbq_current_level()->name);
}

static PyObject *x86_features(PyObject *module, PyObject *args) {
    (void)module;
    unsigned int ecx1, ebx7, ecx7, eax71;
    unsigned long long xcr0;
    if (!PyArg_ParseTuple(args, "IIIIK", &ecx1, &ebx7, &ecx7, &eax71, &xcr0)) return NULL;
    return PyLong_FromUnsignedLong(cbq_x86_features((cbq_x86_id){ecx1, ebx7, ecx7, eax71, xcr0}));
}

static PyObject *num_threads(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    return cbq_use_environment(1) ? NULL : PyLong_FromLong(cbq_num_threads());
}

static PyObject *set_num_threads(PyObject *module, PyObject *args) {
    (void)module;
    int n;
    if (!PyArg_ParseTuple(args, "i", &n)) return NULL;
    if (n < 0 || n > CBQ_MAX_THREADS) return PyErr_Format(PyExc_ValueError, "n: expected 1 to %d, got %d", CBQ_MAX_THREADS, n);
    cbq_set_num_threads(n);
    Py_RETURN_NONE;
}

static PyObject *pool_size(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    return PyLong_FromLong(cbq_pool_size());
}

static PyObject *cgroup_cpus(PyObject *module, PyObject *args) {
    (void)module;
    const char *membership, *mount;
    if (!PyArg_ParseTuple(args, "ss", &membership, &mount)) return NULL;
    return PyLong_FromLong(cbq_cgroup_cpus(membership, mount));
}

static PyObject *last_cache_bytes(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    return PyLong_FromLongLong(cbq_last_cache_bytes());
}

PyMethodDef cbq_machine_methods[] = {
    {"isa_levels", isa_levels, METH_NOARGS, "isa_levels() -> list of (name, available, kernels), weakest first"},
    {"isa", isa, METH_NOARGS, "isa() -> the level in use"},
    {"x86_features", x86_features, METH_VARARGS, "x86_features(leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_1_eax, xcr0) -> bits, for tests"},
    {"num_threads", num_threads, METH_NOARGS, "num_threads() -> threads of a call that names none"},
    {"set_num_threads", set_num_threads, METH_VARARGS, "set_num_threads(n); 0 for the default"},
    {"pool_size", pool_size, METH_NOARGS, "pool_size() -> helper threads that exist now"},
    {"cgroup_cpus", cgroup_cpus, METH_VARARGS, "cgroup_cpus(membership, mount) -> cores of the quota, 0 for none"},
    {"last_cache_bytes", last_cache_bytes, METH_NOARGS, "last_cache_bytes() -> size of the last-level cache, 0 if unknown"},
    {NULL, NULL, 0, NULL},
};
