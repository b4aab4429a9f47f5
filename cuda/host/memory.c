/* Memory of a device as a Python object, and copies from and to it. */
#include "host.h"
#include "kernels.h"

#include <unistd.h>

/* Allocating and freeing while another thread captures a graph is fine, but CUDA takes it for a mistake unless told. */
static cudaError_t in_relaxed_mode(cudaError_t (*work)(cbq_memory *), cbq_memory *m) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int before;
    cudaError_t error = cbq_enter(m->device, &before);
    if (!error) error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (!error) {
        error = work(m);
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    }
    cbq_leave(m->device, before);
    return error;
}

static cudaError_t allocate(cbq_memory *m) {
    void *address = NULL;
    cudaError_t error = cudaMalloc(&address, m->nbytes);
    m->address = (uint64_t)(uintptr_t)address;
    return error;
}

static cudaError_t release(cbq_memory *m) { return cudaFree((void *)(uintptr_t)m->address); }

static void memory_dealloc(PyObject *self) {
    cbq_memory *m = (cbq_memory *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (m->give_back) m->give_back(m->managed);
    /* A forked child has no context; at the end of the process the driver has gone. There is no one to tell of an error. */
    if (m->pid == (long)getpid() && m->address) {
        Py_BEGIN_ALLOW_THREADS
        if (in_relaxed_mode(release, m)) (void)cudaGetLastError();
        Py_END_ALLOW_THREADS
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *memory_address(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((cbq_memory *)self)->address);
}
static PyObject *memory_nbytes(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((cbq_memory *)self)->nbytes);
}
static PyObject *memory_device(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(((cbq_memory *)self)->device);
}

static PyGetSetDef memory_members[] = {
    {"address", memory_address, NULL, "where it begins", NULL},
    {"nbytes", memory_nbytes, NULL, "how many bytes it has", NULL},
    {"device", memory_device, NULL, "the index of its device", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_getset, memory_members},
    {Py_tp_doc, "Memory of a device. malloc, borrow and from_dlpack make them."},
    {0, NULL},
};
static PyType_Spec memory_spec = {
    .name = "cbquant._cuda.Memory",
    .basicsize = sizeof(cbq_memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = memory_slots,
};

PyTypeObject *cbq_make_memory_type(PyObject *module) { return (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL); }

cbq_memory *cbq_new_memory(PyObject *module, int device, uint64_t address, uint64_t nbytes) {
    PyTypeObject *type = ((cbq_cuda_state *)PyModule_GetState(module))->memory;
    cbq_memory *m = (cbq_memory *)type->tp_alloc(type, 0);
    if (m) m->device = device, m->address = address, m->nbytes = nbytes;
    return m;
}

/* ---- arguments ---- */

int cbq_get_memory(PyObject *module, PyObject *object, const char *name, cbq_memory **memory) {
    *memory = (cbq_memory *)object;
    if (Py_IS_TYPE(object, ((cbq_cuda_state *)PyModule_GetState(module))->memory)) return 0;
    PyErr_Format(PyExc_TypeError, "%s: expected Memory, got %.100s", name, Py_TYPE(object)->tp_name);
    return -1;
}

int cbq_get_place(PyObject *module, PyObject *memory, PyObject *offset, const char *name, uint64_t nbytes, cbq_place *place) {
    int64_t from;
    if (cbq_get_memory(module, memory, name, &place->memory)) return -1;
    if (cbq_get_int(offset, "offset", 0, (int64_t)place->memory->nbytes, &from)) return -1;
    place->at = (char *)(uintptr_t)place->memory->address + from;
    uint64_t left = place->memory->nbytes - (uint64_t)from;
    if (nbytes <= left) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected %llu bytes from offset %lld, there are %llu", name, (unsigned long long)nbytes, (long long)from,
                 (unsigned long long)left);
    return -1;
}

int cbq_check_aligned(const cbq_place *place, const char *name) {
    if ((uintptr_t)place->at % 16 == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected memory at a multiple of 16 bytes, got address %p", name, (void *)place->at);
    return -1;
}

int cbq_check_blocks(const cbq_place *place, const char *name, uint64_t nbytes) {
    const cbq_memory *m = place->memory;
    uint64_t before = (uint64_t)(uintptr_t)place->at - m->address, after = m->nbytes - before;
    if (before >= CBQ_CUDA_MARGIN && nbytes + CBQ_CUDA_MARGIN <= after) return cbq_check_aligned(place, name);
    PyErr_Format(PyExc_ValueError, "%s: expected %d bytes of margin on both sides of %llu bytes, there are %llu before, %llu from there", name,
                 CBQ_CUDA_MARGIN, (unsigned long long)nbytes, (unsigned long long)before, (unsigned long long)after);
    return -1;
}

/* ---- functions ---- */

static PyObject *cuda_malloc(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int device;
    int64_t nbytes;
    if (cbq_get_count(n, 2) || cbq_get_device(args[0], &device) || cbq_get_int(args[1], "nbytes", 1, CBQ_CUDA_MAX_BYTES, &nbytes)) return NULL;
    cbq_memory *m = cbq_new_memory(module, device, 0, (uint64_t)nbytes);
    if (!m) return NULL;
    m->pid = (long)getpid();
    char operation[60];
    snprintf(operation, sizeof operation, "allocating %lld bytes", (long long)nbytes);
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = in_relaxed_mode(allocate, m);
    Py_END_ALLOW_THREADS
    if (!cbq_cuda_check(error, operation)) return (PyObject *)m;
    Py_DECREF(m);
    return NULL;
}

static PyObject *borrow(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int device;
    uint64_t address;
    int64_t nbytes;
    if (cbq_get_count(n, 3) || cbq_get_device(args[0], &device) || cbq_get_address(args[1], &address)) return NULL;
    if (cbq_get_int(args[2], "nbytes", 0, CBQ_CUDA_MAX_BYTES, &nbytes)) return NULL;
    return (PyObject *)cbq_new_memory(module, device, address, (uint64_t)nbytes);
}

/* __cuda_array_interface__ does not say where its memory is. */
static PyObject *pointer_device(PyObject *module, PyObject *argument) {
    (void)module;
    uint64_t address;
    if (cbq_get_address(argument, &address)) return NULL;
    struct cudaPointerAttributes a;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cudaPointerGetAttributes(&a, (const void *)(uintptr_t)address);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "asking where an address is")) return NULL;
    if (a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged) return PyLong_FromLong(a.device);
    return PyErr_Format(PyExc_ValueError, "address: expected memory of a device, got %p of the host", (void *)(uintptr_t)address);
}

/* Between a buffer of the host and a place. The copy has been made when it returns. */
static PyObject *copy(PyObject *module, PyObject *const *args, Py_ssize_t n, enum cudaMemcpyKind kind, const char *operation) {
    int to_host = kind == cudaMemcpyDeviceToHost, before;
    Py_buffer host;
    cbq_place place;
    cudaStream_t stream;
    if (cbq_get_count(n, 4) || cbq_get_stream(args[3], "stream", &stream)) return NULL;
    if (PyObject_GetBuffer(args[2], &host, to_host ? PyBUF_WRITABLE : PyBUF_SIMPLE)) return NULL;
    if (cbq_get_place(module, args[0], args[1], "memory", (uint64_t)host.len, &place)) {
        PyBuffer_Release(&host);
        return NULL;
    }
    int device = place.memory->device;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error && host.len) error = cudaMemcpyAsync(to_host ? host.buf : place.at, to_host ? place.at : host.buf, (size_t)host.len, kind, stream);
    if (!error) error = cudaStreamSynchronize(stream);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&host);
    if (cbq_cuda_check(error, operation)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *upload(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    return copy(module, args, n, cudaMemcpyHostToDevice, "copying to the device");
}
static PyObject *download(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    return copy(module, args, n, cudaMemcpyDeviceToHost, "copying from the device");
}

static PyObject *fill(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int64_t nbytes, byte;
    int before;
    cbq_place place;
    cudaStream_t stream;
    if (cbq_get_count(n, 5) || cbq_get_int(args[2], "nbytes", 0, CBQ_CUDA_MAX_BYTES, &nbytes)) return NULL;
    if (cbq_get_int(args[3], "byte", 0, 255, &byte) || cbq_get_stream(args[4], "stream", &stream)) return NULL;
    if (cbq_get_place(module, args[0], args[1], "memory", (uint64_t)nbytes, &place)) return NULL;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(place.memory->device, &before);
    if (!error && nbytes) error = cudaMemsetAsync(place.at, (int)byte, (size_t)nbytes, stream);
    cbq_leave(place.memory->device, before);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "filling memory")) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef cbq_memory_methods[] = {
    {"malloc", CBQ_FAST(cuda_malloc), "malloc(device, nbytes) -> Memory, freed with the object"},
    {"borrow", CBQ_FAST(borrow), "borrow(device, address, nbytes) -> Memory that someone else keeps alive"},
    {"pointer_device", pointer_device, METH_O, "pointer_device(address) -> the device that it is on"},
    {"upload", CBQ_FAST(upload), "upload(memory, offset, buffer, stream): copy a buffer to the device, and wait for it"},
    {"download", CBQ_FAST(download), "download(memory, offset, buffer, stream): copy to a writable buffer, and wait for it"},
    {"fill", CBQ_FAST(fill), "fill(memory, offset, nbytes, byte, stream)"},
    {NULL, NULL, 0, NULL},
};
