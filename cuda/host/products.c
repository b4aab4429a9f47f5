/* Products, with and without experts. */
#include "host.h"
#include "formats.h"
#include "kernels.h"

#include "base.h"

/* Rows of floats: (memory, offset, dtype, stride in elements). */
typedef struct {
    cbq_place place;
    int dtype;
    uint64_t stride;
} floats;

static PyObject *item(PyObject *tuple, Py_ssize_t i) { return PyTuple_GET_ITEM(tuple, i); }

static int check_tuple(PyObject *object, const char *name, Py_ssize_t size) {
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == size) return 0;
    PyErr_Format(PyExc_TypeError, "%s: expected a tuple of %zd, got %R", name, size, object);
    return -1;
}

static int get_floats(PyObject *module, PyObject *object, const char *name, uint64_t rows, uint64_t columns, floats *f) {
    int64_t stride;
    if (check_tuple(object, name, 4) || cbq_get_dtype(item(object, 2), name, &f->dtype)) return -1;
    if (cbq_get_int(item(object, 3), name, rows > 1 ? (int64_t)columns : 0, UINT32_MAX, &stride)) return -1;
    uint64_t size = f->dtype == CBQ_F32 ? 4 : 2, nbytes = rows && columns ? ((rows - 1) * (uint64_t)stride + columns) * size : 0;
    f->stride = (uint64_t)stride;
    if (nbytes > CBQ_CUDA_MAX_BYTES) return PyErr_Format(PyExc_ValueError, "%s: %llu bytes are too many", name, (unsigned long long)nbytes), -1;
    if (cbq_get_place(module, item(object, 0), item(object, 1), name, nbytes, &f->place)) return -1;
    if ((uintptr_t)f->place.at % size == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected an address of whole elements, got %p", name, (void *)f->place.at);
    return -1;
}

/* (memory, offset) of numbers of 4 bytes. */
static int get_array32(PyObject *module, PyObject *object, const char *name, uint64_t count, cbq_place *place) {
    if (check_tuple(object, name, 2) || cbq_get_place(module, item(object, 0), item(object, 1), name, 4 * count, place)) return -1;
    if ((uintptr_t)place->at % 4 == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected an address at a multiple of 4, got %p", name, (void *)place->at);
    return -1;
}

static int check_same_device(const cbq_place *place, const char *name, int device) {
    if (place->memory->device == device) return 0;
    PyErr_Format(PyExc_ValueError, "%s: expected device %d, as the weights, got %d", name, device, place->memory->device);
    return -1;
}

/* (tag, precision, m, n, k, experts, picks, layout): experts is 0 and picks 1 without experts. */
static int get_problem(PyObject *object, cbq_cuda_product *p, const cbq_format **format) {
    static const char *const names[] = {"tag", "precision", "m", "n", "k", "experts", "picks", "layout"};
    int64_t v[8];
    if (check_tuple(object, "problem", 8)) return -1;
    for (int i = 0; i < 8; i++) {
        int64_t low = i == 0 ? INT32_MIN : i == 6, high = i == 1 ? CBQ_CUDA_FLOAT32 : i == 7 ? CBQ_CUDA_LAYOUTS - 1 : INT32_MAX;
        if (cbq_get_int(item(object, i), names[i], low, high, &v[i])) return -1;
    }
    *p = (cbq_cuda_product){.tag = (int)v[0], .precision = (int)v[1], .m = (uint64_t)v[2], .n = (uint64_t)v[3], .k = (uint64_t)v[4],
                            .experts = (uint64_t)v[5], .picks = (uint64_t)v[6], .layout = (int)v[7]};
    if (p->m * p->picks > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "m, picks: expected at most %d rows of y, got %lld times %lld", INT32_MAX, (long long)v[2], (long long)v[6]);
        return -1;
    }
    *format = cbq_cuda_format(p->tag);
    if (!*format) return -1;
    if (p->k / (uint64_t)(*format)->elements * (uint64_t)(*format)->bytes > UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "k: rows of %lld elements (%s) are too long", (long long)v[4], (*format)->name), -1;
    if (p->k && p->k % (uint64_t)(*format)->elements == 0) return 0;
    PyErr_Format(PyExc_ValueError, "k: expected a multiple of %d (%s) from 1 up, got %lld", (*format)->elements, (*format)->name, (long long)v[4]);
    return -1;
}

/* What a product asks about its device. It is asked anew each time: that takes less than looking it up here. */
static cudaError_t get_limits(int device, cbq_cuda_product *p) {
    int shared = 0, before;
    cudaError_t error = cudaDeviceGetAttribute(&p->processors, cudaDevAttrMultiProcessorCount, device);
    if (!error) error = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    p->shared_memory = (uint64_t)shared;
    if (error) return error;
    error = cbq_enter(device, &before);
    if (!error) error = cbq_cuda_has_hopper(&p->hopper);
    cbq_leave(device, before);
    return error;
}

/* 0 with a ValueError where there is no product of the format. */
static uint64_t workspace_of(const cbq_cuda_product *p, const cbq_format *format) {
    uint64_t nbytes = cbq_cuda_wgmma_suits(p) ? cbq_cuda_wgmma_workspace(p) : cbq_cuda_product_workspace(p);
    if (!nbytes) PyErr_Format(PyExc_ValueError, "w: there is no product with %s on GPUs%s", format->name, p->layout ? " in fragments" : "");
    return nbytes;
}

static PyObject *has_product(PyObject *module, PyObject *argument) {
    (void)module;
    int64_t tag;
    if (cbq_get_int(argument, "tag", INT32_MIN, INT32_MAX, &tag)) return NULL;
    return PyBool_FromLong(cbq_cuda_has_product((int)tag));
}

static PyObject *product_workspace(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    int device;
    cbq_cuda_product p;
    const cbq_format *format;
    static const int32_t some = 0;
    if (cbq_get_count(n, 2) || cbq_get_device(args[0], &device) || get_problem(args[1], &p, &format)) return NULL;
    p.ids = p.experts ? &some : NULL; /* whether there are ids is all that it looks at */
    if (cbq_cuda_check(get_limits(device, &p), "asking for the limits of a device")) return NULL;
    uint64_t nbytes = workspace_of(&p, format);
    return nbytes ? PyLong_FromUnsignedLongLong(nbytes) : NULL;
}

static int get_weights(PyObject *module, PyObject *object, const cbq_cuda_product *p, const cbq_format *f, cbq_place *w) {
    uint64_t nbytes;
    uint64_t row = p->k / (uint64_t)f->elements * (uint64_t)f->bytes, rows = p->n * (p->experts ? p->experts : 1);
    const uint64_t most = p->layout == CBQ_CUDA_FRAGMENTS ? CBQ_FRAGMENTS_MAX_BYTES : CBQ_CUDA_MAX_BYTES;
    if (__builtin_mul_overflow(row, rows, &nbytes) || nbytes > most) return PyErr_Format(PyExc_ValueError, "w: too many bytes"), -1;
    if (check_tuple(object, "w", 2)) return -1;
    if (p->layout == CBQ_CUDA_FRAGMENTS) {
        cbq_cuda_weights shape = {.tag = p->tag, .experts = p->experts ? p->experts : 1, .n = p->n, .k = p->k};
        return cbq_get_fragments(module, item(object, 0), item(object, 1), "w", &shape, w);
    }
    if (cbq_get_place(module, item(object, 0), item(object, 1), "w", nbytes, w)) return -1;
    return cbq_check_blocks(w, "w", nbytes);
}

static PyObject *matmul(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    cbq_cuda_product p;
    const cbq_format *format;
    floats x, y;
    cbq_place w, workspace, ids;
    cudaStream_t stream;
    int before;
    if (cbq_get_count(n, 7) || get_problem(args[0], &p, &format) || cbq_get_stream(args[6], "stream", &stream)) return NULL;
    if (get_floats(module, args[1], "x", p.m, p.k, &x) || get_weights(module, args[2], &p, format, &w)) return NULL;
    if (get_floats(module, args[3], "y", p.m * p.picks, p.n, &y)) return NULL;
    int device = w.memory->device;
    if (check_same_device(&x.place, "x", device) || check_same_device(&y.place, "y", device)) return NULL;
    if (p.experts) {
        if (get_array32(module, args[4], "ids", p.m * p.picks, &ids) || check_same_device(&ids, "ids", device)) return NULL;
        p.ids = (const int32_t *)ids.at;
    } else if (args[4] != Py_None) return PyErr_Format(PyExc_TypeError, "ids: expected None without experts, got %.100s", Py_TYPE(args[4])->tp_name);
    if (cbq_cuda_check(get_limits(device, &p), "asking for the limits of a device")) return NULL;
    uint64_t needed = workspace_of(&p, format);
    if (!needed || check_tuple(args[5], "workspace", 2)) return NULL;
    if (cbq_get_place(module, item(args[5], 0), item(args[5], 1), "workspace", needed, &workspace)) return NULL;
    if (cbq_check_aligned(&workspace, "workspace") || check_same_device(&workspace, "workspace", device)) return NULL;
    p.x = x.place.at, p.x_dtype = x.dtype, p.x_stride = x.stride;
    p.y = y.place.at, p.y_dtype = y.dtype, p.y_stride = y.stride;
    p.w = w.at, p.workspace = workspace.at;
    const char *name = "";
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = (cbq_cuda_wgmma_suits(&p) ? cbq_cuda_wgmma_matmul : cbq_cuda_matmul)(&p, stream, &name);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "matmul") ? NULL : PyUnicode_FromString(name);
}

static PyObject *moe_sum(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    int64_t tokens, picks, columns;
    cbq_place z, weights, ids;
    floats y;
    cudaStream_t stream;
    int before;
    if (cbq_get_count(n, 8) || cbq_get_int(args[0], "tokens", 0, INT32_MAX, &tokens)) return NULL;
    if (cbq_get_int(args[1], "picks", 1, INT32_MAX, &picks)) return NULL;
    if (cbq_get_int(args[2], "n", 0, 65535 * INT64_C(128), &columns) || cbq_get_stream(args[7], "stream", &stream)) return NULL;
    if (tokens * picks > INT32_MAX) return PyErr_Format(PyExc_ValueError, "tokens, picks: expected at most %d rows of z", INT32_MAX);
    uint64_t rows = (uint64_t)(tokens * picks);
    if (get_array32(module, args[3], "z", rows * (uint64_t)columns, &z) || get_array32(module, args[4], "weights", rows, &weights)) return NULL;
    if (get_array32(module, args[5], "ids", rows, &ids)) return NULL;
    if (get_floats(module, args[6], "y", (uint64_t)tokens, (uint64_t)columns, &y)) return NULL;
    int device = z.memory->device;
    if (check_same_device(&weights, "weights", device) || check_same_device(&ids, "ids", device)) return NULL;
    if (check_same_device(&y.place, "y", device)) return NULL;
    cbq_cuda_weighted_sum s = {(const float *)z.at, (const float *)weights.at, (const int32_t *)ids.at, y.place.at,
                               y.dtype, (uint64_t)tokens, (uint64_t)picks, (uint64_t)columns, y.stride};
    const char *name = "";
    cudaError_t error;
    Py_BEGIN_ALLOW_THREADS
    error = cbq_enter(device, &before);
    if (!error) error = cbq_cuda_moe_sum(&s, stream, &name);
    cbq_leave(device, before);
    Py_END_ALLOW_THREADS
    return cbq_cuda_check(error, "moe_sum") ? NULL : PyUnicode_FromString(name);
}

PyMethodDef cbq_product_methods[] = {
    {"has_product", has_product, METH_O, "has_product(tag) -> whether products take weights of that format"},
    {"product_workspace", CBQ_FAST(product_workspace), "product_workspace(device, problem) -> bytes that the workspace must have"},
    {"matmul", CBQ_FAST(matmul),
     "matmul(problem, x, w, y, ids, workspace, stream) -> the kernel's name. problem: (tag, precision, m, n, k, experts, picks, layout); x, y: "
     "(memory, offset, dtype, stride); w, ids, workspace: (memory, offset)"},
    {"moe_sum", CBQ_FAST(moe_sum), "moe_sum(tokens, picks, n, z, weights, ids, y, stream) -> the kernel's name; operands as for matmul"},
    {NULL, NULL, 0, NULL},
};
