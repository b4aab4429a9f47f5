/* Streams, which are handles that others made, and events. */
#include "host.h"

static PyObject *synchronize(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    int device, before;
    cudaStream_t stream;
    if (cbq_get_count(n, 2) || cbq_get_device(args[0], &device) || cbq_get_stream(args[1], "stream", &stream)) return NULL;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = cudaStreamSynchronize(stream);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "waiting for a stream")) return NULL;
    Py_RETURN_NONE;
}

static PyObject *is_capturing(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    int device, before;
    cudaStream_t stream;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cbq_get_count(n, 2) || cbq_get_device(args[0], &device) || cbq_get_stream(args[1], "stream", &stream)) return NULL;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = cudaStreamIsCapturing(stream, &status);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "asking whether a stream captures a graph")) return NULL;
    return PyBool_FromLong(status != cudaStreamCaptureStatusNone);
}

/* `after` waits for what `before` has been given so far. CUDA frees the event once it has happened. */
static cudaError_t make_wait(cudaStream_t before, cudaStream_t after) {
    cudaEvent_t event;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error) return error;
    error = cudaEventRecord(event, before);
    if (!error) error = cudaStreamWaitEvent(after, event, 0);
    (void)cudaEventDestroy(event);
    return error;
}

static PyObject *order(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    int device, current;
    cudaStream_t before, after;
    if (cbq_get_count(n, 3) || cbq_get_device(args[0], &device)) return NULL;
    if (cbq_get_stream(args[1], "before", &before) || cbq_get_stream(args[2], "after", &after)) return NULL;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &current);
    if (!error) error = make_wait(before, after);
    cbq_leave(device, current);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "making a stream wait for another")) return NULL;
    Py_RETURN_NONE;
}

/* ---- events, for timing ---- */

typedef struct {
    PyObject_HEAD
    int device;
    cudaEvent_t event;
} timing_event;

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *index;
    int device, before;
    static char *names[] = {"device", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &index) || cbq_get_device(index, &device)) return NULL;
    timing_event *self = (timing_event *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->device = device;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = cudaEventCreate(&self->event);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    if (!cbq_cuda_check(error, "making an event")) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void event_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    timing_event *self = (timing_event *)object;
    if (self->event && cudaEventDestroy(self->event)) (void)cudaGetLastError();
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *event_record(PyObject *object, PyObject *handle) {
    timing_event *self = (timing_event *)object;
    cudaStream_t stream;
    int before;
    if (cbq_get_stream(handle, "stream", &stream)) return NULL;
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(self->device, &before);
    if (!error) error = cudaEventRecord(self->event, stream);
    cbq_leave(self->device, before);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, "recording an event")) return NULL;
    Py_RETURN_NONE;
}

/* Waits for the later one. */
static PyObject *event_elapsed_ms(PyObject *object, PyObject *later) {
    float ms = 0;
    if (!Py_IS_TYPE(later, Py_TYPE(object))) return PyErr_Format(PyExc_TypeError, "later: expected Event, got %.100s", Py_TYPE(later)->tp_name);
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cudaEventSynchronize(((timing_event *)later)->event);
    if (!error) error = cudaEventElapsedTime(&ms, ((timing_event *)object)->event, ((timing_event *)later)->event);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "measuring the time between events") ? NULL : PyFloat_FromDouble(ms);
}

static PyMethodDef event_methods[] = {
    {"record", event_record, METH_O, "record(stream)"},
    {"elapsed_ms", event_elapsed_ms, METH_O, "elapsed_ms(later) -> milliseconds from this event to a later one, which it waits for"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot event_slots[] = {{Py_tp_new, event_new}, {Py_tp_dealloc, event_dealloc}, {Py_tp_methods, event_methods},
                                    {Py_tp_doc, "Event(device): a moment of a stream"}, {0, NULL}};
static PyType_Spec event_spec = {
    .name = "cbquant._cuda.Event",
    .basicsize = sizeof(timing_event),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = event_slots,
};

PyTypeObject *cbq_make_event_type(PyObject *module) { return (PyTypeObject *)PyType_FromModuleAndSpec(module, &event_spec, NULL); }

PyMethodDef cbq_stream_methods[] = {
    {"synchronize", CBQ_FAST(synchronize), "synchronize(device, stream): wait until a stream has done all that it was given"},
    {"is_capturing", CBQ_FAST(is_capturing), "is_capturing(device, stream) -> whether a stream captures a graph"},
    {"order", CBQ_FAST(order), "order(device, before, after): the stream `after` waits for what `before` has been given so far"},
    {NULL, NULL, 0, NULL},
};
