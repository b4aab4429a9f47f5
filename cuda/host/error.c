/* Errors of CUDA as exceptions, and the current device. */
#include "host.h"

int cbq_cuda_check(cudaError_t error, const char *operation) {
    if (error == cudaSuccess) return 0;
    (void)cudaGetLastError(); /* forgotten, so that the next one who asks does not take it for an error of his own */
    PyObject *module = PyImport_ImportModule("cbquant.cuda._error");
    PyObject *type = module ? PyObject_GetAttrString(module, "CudaError") : NULL;
    PyObject *value = type ? PyObject_CallFunction(type, "ssis", operation, cudaGetErrorName(error), (int)error, cudaGetErrorString(error)) : NULL;
    if (value) PyErr_SetObject(type, value);
    Py_XDECREF(value);
    Py_XDECREF(type);
    Py_XDECREF(module);
    return -1;
}

cudaError_t cbq_enter(int device, int *before) {
    *before = device;
    cudaError_t error = cudaGetDevice(before);
    if (error) *before = device;
    return error || *before == device ? error : cudaSetDevice(device);
}

void cbq_leave(int device, int before) {
    if (before != device) (void)cudaSetDevice(before);
}
