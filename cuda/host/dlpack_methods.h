/* The two halves of the module's DLPack. */
#pragma once
#include "host.h"

PyObject *cbq_to_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *cbq_from_dlpack(PyObject *module, PyObject *capsule);
