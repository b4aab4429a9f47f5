/* cbquant._cuda: the module, its types and its tables of functions. Loading it does not touch the driver. */
#include "host.h"
#include "kernels.h"
#include "operators.h"

static int cuda_exec(PyObject *module) {
    cbq_cuda_state *state = PyModule_GetState(module);
    PyMethodDef *const tables[] = {cbq_device_methods, cbq_memory_methods, cbq_stream_methods,
                                   cbq_kernel_methods, cbq_product_methods, cbq_fragment_methods, cbq_dlpack_methods, cbq_operator_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (PyModule_AddFunctions(module, tables[i])) return -1;
    state->memory = cbq_make_memory_type(module);
    if (!state->memory || PyModule_AddType(module, state->memory)) return -1;
    state->event = cbq_make_event_type(module);
    if (!state->event || PyModule_AddType(module, state->event)) return -1;
    if (PyModule_AddStringConstant(module, "ARCHITECTURES", CBQ_CUDA_ARCHS)) return -1;
    if (PyModule_AddIntConstant(module, "RUNTIME", CUDART_VERSION)) return -1;
    if (PyModule_AddIntConstant(module, "MOST_LISTED", CBQ_CUDA_MOST_LISTED)) return -1;
    if (PyModule_AddIntConstant(module, "MOST_SELECTED", CBQ_CUDA_MOST_SELECTED)) return -1;
    if (PyModule_AddIntConstant(module, "MOST_COLUMNS", CBQ_CUDA_MOST_COLUMNS)) return -1;
    return PyModule_AddIntConstant(module, "MARGIN", CBQ_CUDA_MARGIN);
}

static int cuda_traverse(PyObject *module, visitproc visit, void *arg) {
    cbq_cuda_state *state = PyModule_GetState(module);
    Py_VISIT(state->memory);
    Py_VISIT(state->event);
    return 0;
}

static int cuda_clear(PyObject *module) {
    cbq_cuda_state *state = PyModule_GetState(module);
    Py_CLEAR(state->memory);
    Py_CLEAR(state->event);
    return 0;
}

static void cuda_free(void *module) { (void)cuda_clear(module); }

static PyModuleDef_Slot cuda_slots[] = {
    {Py_mod_exec, cuda_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* as NumPy */
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef cuda_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cbquant._cuda",
    .m_doc = "The CUDA part of cbquant: low-level functions on memory of a device. Use the functions of cbquant.cuda.",
    .m_size = sizeof(cbq_cuda_state),
    .m_slots = cuda_slots,
    .m_traverse = cuda_traverse,
    .m_clear = cuda_clear,
    .m_free = cuda_free,
};

PyMODINIT_FUNC PyInit__cuda(void) { return PyModuleDef_Init(&cuda_module); }
