/* The operators of DeepSeek-V4: one way to call them all (operators.h). */
#include "host.h"
#include "operators.h"

#include "base.h"

enum { MOST_ARRAYS = 12, MOST_NUMBERS = 8 };

typedef struct {
    const cbq_cuda_operator *operator;
    cbq_cuda_array arrays[MOST_ARRAYS];
    double numbers[MOST_NUMBERS];
    cbq_cuda_operands operands;
} call;

static const struct {
    const char *name;
    int type, size;
} types[] = {{"float32", CBQ_F32, 4}, {"float16", CBQ_F16, 2},    {"bfloat16", CBQ_BF16, 2},
             {"int32", CBQ_CUDA_I32, 4}, {"int64", CBQ_CUDA_I64, 8}, {"float64", CBQ_CUDA_F64, 8}};

static int get_type(PyObject *object, const char *name, int *type, int *size) {
    for (size_t i = 0; PyUnicode_Check(object) && i < sizeof types / sizeof *types; i++)
        if (PyUnicode_CompareWithASCIIString(object, types[i].name) == 0) return *type = types[i].type, *size = types[i].size, 0;
    PyErr_Format(PyExc_ValueError, "%s: expected a type of elements, got %R", name, object);
    return -1;
}

static int get_axes(PyObject *object, const char *name, int axes, int64_t values[CBQ_CUDA_DIMS]) {
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != axes)
        return PyErr_Format(PyExc_TypeError, "%s: expected a tuple of %d", name, axes), -1;
    for (int i = 0; i < axes; i++)
        if (cbq_get_int(PyTuple_GET_ITEM(object, i), name, 0, INT64_C(1) << 48, &values[i])) return -1;
    return 0;
}

/* Bytes from the first element to behind the last one; -1 where they are too many. */
static int64_t extent(const cbq_cuda_array *a, int size) {
    int64_t last = 0, step;
    for (int i = 0; i < a->axes; i++) {
        if (a->shape[i] == 0) return 0;
        if (__builtin_mul_overflow(a->shape[i] - 1, a->strides[i], &step) || __builtin_add_overflow(last, step, &last)) return -1;
    }
    return last > CBQ_CUDA_MAX_BYTES / 8 - 1 ? -1 : (last + 1) * size;
}

/* None, or (memory, offset, type, shape, strides in elements). Who asks for a size of memory may have none yet: None for it. */
static int get_array(PyObject *module, PyObject *object, int device, int is_planned, cbq_cuda_array *a) {
    static const char name[] = "array";
    static char anywhere;
    int size;
    cbq_place place;
    *a = (cbq_cuda_array){.data = NULL};
    if (object == Py_None) return 0;
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 5)
        return PyErr_Format(PyExc_TypeError, "%s: expected None or a tuple of 5", name), -1;
    PyObject *shape = PyTuple_GET_ITEM(object, 3);
    Py_ssize_t axes = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : -1;
    if (axes < 0 || axes > CBQ_CUDA_DIMS) return PyErr_Format(PyExc_ValueError, "%s: expected at most %d axes", name, CBQ_CUDA_DIMS), -1;
    a->axes = (int)axes;
    if (get_type(PyTuple_GET_ITEM(object, 2), name, &a->type, &size) || get_axes(shape, name, a->axes, a->shape)) return -1;
    if (get_axes(PyTuple_GET_ITEM(object, 4), name, a->axes, a->strides)) return -1;
    int64_t nbytes = extent(a, size);
    if (nbytes < 0) return PyErr_Format(PyExc_ValueError, "%s: too many bytes", name), -1;
    if (is_planned && PyTuple_GET_ITEM(object, 0) == Py_None) return a->data = &anywhere, 0;
    if (cbq_get_place(module, PyTuple_GET_ITEM(object, 0), PyTuple_GET_ITEM(object, 1), name, (uint64_t)nbytes, &place)) return -1;
    if (place.memory->device != device)
        return PyErr_Format(PyExc_ValueError, "%s: expected device %d, got %d", name, device, place.memory->device), -1;
    if ((uintptr_t)place.at % (unsigned)size) return PyErr_Format(PyExc_ValueError, "%s: expected an address of whole elements", name), -1;
    a->data = place.at;
    return 0;
}

static const cbq_cuda_operator *find(PyObject *name) {
    const cbq_cuda_operator *o;
    for (int i = 0; (o = cbq_cuda_operator_at(i)); i++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, o->name) == 0) return o;
    PyErr_Format(PyExc_ValueError, "name: there is no operator %R", name);
    return NULL;
}

/* name, arrays, numbers */
static int get_call(PyObject *module, PyObject *const *args, int device, int is_planned, call *c) {
    c->operator = find(args[0]);
    if (!c->operator) return -1;
    const int n = c->operator->arrays, m = c->operator->numbers;
    if (!PyTuple_Check(args[1]) || PyTuple_GET_SIZE(args[1]) != n || !PyTuple_Check(args[2]) || PyTuple_GET_SIZE(args[2]) != m || n > MOST_ARRAYS ||
        m > MOST_NUMBERS) {
        PyErr_Format(PyExc_TypeError, "%s: expected tuples of %d arrays and %d numbers", c->operator->name, n, m);
        return -1;
    }
    for (int i = 0; i < n; i++)
        if (get_array(module, PyTuple_GET_ITEM(args[1], i), device, is_planned, &c->arrays[i])) return -1;
    for (int i = 0; i < m; i++) {
        c->numbers[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(args[2], i));
        if (c->numbers[i] == -1 && PyErr_Occurred()) return -1;
    }
    c->operands = (cbq_cuda_operands){.arrays = c->arrays, .numbers = c->numbers};
    cudaError_t error = cudaDeviceGetAttribute(&c->operands.processors, cudaDevAttrMultiProcessorCount, device);
    if (!error) error = cudaDeviceGetAttribute(&c->operands.shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return cbq_cuda_check(error, "asking for the limits of a device");
}

static uint64_t workspace_of(const call *c) { return c->operator->workspace ? c->operator->workspace(&c->operands) : 0; }

static PyObject *operator_workspace(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int device;
    call c;
    if (cbq_get_count(n, 4) || cbq_get_device(args[0], &device) || get_call(module, args + 1, device, 1, &c)) return NULL;
    return PyLong_FromUnsignedLongLong(workspace_of(&c));
}

static PyObject *run_operator(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int device, before;
    call c;
    cbq_place place;
    cudaStream_t stream;
    if (cbq_get_count(n, 6) || cbq_get_device(args[0], &device) || get_call(module, args + 1, device, 0, &c)) return NULL;
    if (cbq_get_stream(args[5], "stream", &stream)) return NULL;
    uint64_t needed = workspace_of(&c);
    if (needed) {
        if (!PyTuple_Check(args[4]) || PyTuple_GET_SIZE(args[4]) != 2) return PyErr_Format(PyExc_TypeError, "workspace: expected a tuple of 2");
        if (cbq_get_place(module, PyTuple_GET_ITEM(args[4], 0), PyTuple_GET_ITEM(args[4], 1), "workspace", needed, &place)) return NULL;
        if (cbq_check_aligned(&place, "workspace")) return NULL;
        if (place.memory->device != device)
            return PyErr_Format(PyExc_ValueError, "workspace: expected device %d, got %d", device, place.memory->device);
        c.operands.workspace = place.at;
    }
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = c.operator->run(&c.operands, stream);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    if (cbq_cuda_check(error, c.operator->name)) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef cbq_operator_methods[] = {
    {"operator_workspace", CBQ_FAST(operator_workspace), "operator_workspace(device, name, arrays, numbers) -> bytes that the workspace must have"},
    {"run_operator", CBQ_FAST(run_operator),
     "run_operator(device, name, arrays, numbers, workspace, stream). arrays: None or (memory, offset, type, shape, strides in elements); workspace: "
     "(memory, offset), or None where none is needed"},
    {NULL, NULL, 0, NULL},
};
