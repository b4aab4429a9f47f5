/* Devices, and the releases of the driver and of the runtime. */
#include "host.h"

static PyObject *device_count(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    int count = 0;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cudaGetDeviceCount(&count);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "counting the devices") ? NULL : PyLong_FromLong(count);
}

/* 12080 is CUDA 12.8; the driver's is 0 where there is none. */
static PyObject *versions(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    int driver = 0, runtime = 0;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cudaDriverGetVersion(&driver);
    if (!error) error = cudaRuntimeGetVersion(&runtime);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "asking for the driver's version") ? NULL : Py_BuildValue("(ii)", driver, runtime);
}

static PyObject *properties(PyObject *module, PyObject *argument) {
    (void)module;
    int device, before;
    if (cbq_get_device(argument, &device)) return NULL;
    struct cudaDeviceProp p;
    size_t free_bytes = 0, total = 0;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cudaGetDeviceProperties(&p, device);
    if (!error) {
        error = cbq_enter(device, &before);
        if (!error) error = cudaMemGetInfo(&free_bytes, &total);
        cbq_leave(device, before);
    }
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "asking for the properties of a device")) return NULL;
    return Py_BuildValue("{s:s,s:(ii),s:i,s:K,s:K,s:i,s:K}", "name", p.name, "compute_capability", p.major, p.minor, "multiprocessors",
                         p.multiProcessorCount, "memory_bytes", (unsigned long long)total, "free_bytes", (unsigned long long)free_bytes,
                         "l2_bytes", p.l2CacheSize, "shared_bytes", (unsigned long long)p.sharedMemPerBlockOptin);
}

/* Without making a context. */
static PyObject *compute_capability(PyObject *module, PyObject *argument) {
    (void)module;
    int device, major = 0, minor = 0;
    if (cbq_get_device(argument, &device)) return NULL;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "asking for the compute capability") ? NULL : Py_BuildValue("(ii)", major, minor);
}

PyMethodDef cbq_device_methods[] = {
    {"device_count", device_count, METH_NOARGS, "device_count() -> devices that there are"},
    {"versions", versions, METH_NOARGS, "versions() -> (driver, runtime), 12080 for CUDA 12.8; 0 where there is no driver"},
    {"properties", properties, METH_O, "properties(device) -> dict"},
    {"compute_capability", compute_capability, METH_O, "compute_capability(device) -> (major, minor)"},
    {NULL, NULL, 0, NULL},
};
