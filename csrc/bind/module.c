/* cbquant._core: the module and its tables of functions. It holds no state: the C side has one pool a process and one
   choice of instruction set, both safe without the GIL. */
#define CBQ_BIND_MODULE
#include "bind.h"

#include "../threads.h"

static int core_exec(PyObject *module) {
    import_array1(-1);
    PyMethodDef *const tables[] = {cbq_decode_methods, cbq_encode_methods, cbq_machine_methods,
                                   cbq_product_methods, cbq_codec_methods, cbq_plane_methods,
                                   cbq_operator_methods, cbq_attention_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (PyModule_AddFunctions(module, tables[i])) return -1;
    return PyModule_AddIntConstant(module, "MAX_THREADS", CBQ_MAX_THREADS);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* NumPy has one interpreter */
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cbquant._core",
    .m_doc = "The C core of cbquant: low-level functions on contiguous arrays. Use the functions of cbquant.",
    .m_size = 0,
    .m_slots = core_slots,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
