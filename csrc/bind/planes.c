/* Planes: the formats, dequant_planes, matmul_planes, quantize_planes. */
#include "bind.h"

#include "../ops/codecs.h"
#include "../ops/matmul.h"
#include "../ops/dequant.h"
#include "../ops/quantize.h"
#include "../ops/quantize_planes.h"

static const char *const scales_names[] = {
    [CBQ_SCALES_E8M0] = "e8m0", [CBQ_SCALES_E4M3] = "e4m3fn", [CBQ_SCALES_TILES] = "tile", [CBQ_SCALES_ABSMAX] = "absmax"};
static const char *const scale_types[CBQ_N_SCALE_TYPES] = {
    [CBQ_SCALE_F32] = "f32", [CBQ_SCALE_F16] = "f16", [CBQ_SCALE_BF16] = "bf16", [CBQ_SCALE_E8M0] = "e8m0", [CBQ_SCALE_E4M3] = "e4m3fn"};

static PyObject *plane_formats(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    PyObject *list = PyList_New(CBQ_N_PLANE_FORMATS);
    for (int i = 0; list && i < CBQ_N_PLANE_FORMATS; i++) {
        const cbq_plane_format *f = &cbq_plane_formats[i];
        PyObject *row = Py_BuildValue("(ssiOOisO)", f->name, f->code < 0 ? "table" : cbq_code_rows[f->code].name, f->bits,
                                      f->bits == 4 ? Py_True : Py_False, f->order == CBQ_HIGH ? Py_True : Py_False, f->group,
                                      scales_names[f->scales], f->multiple ? Py_True : Py_False);
        if (!row) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, row);
    }
    return list;
}

static int get_plane_format(const char *name, int *format) {
    *format = cbq_find_plane_format(name);
    if (*format >= 0) return 0;
    PyErr_Format(PyExc_ValueError, "fmt: unknown format of planes '%.60s'", name);
    return -1;
}

static int get_scale_type(const char *name, int *type) {
    for (*type = 0; *type < CBQ_N_SCALE_TYPES; ++*type)
        if (strcmp(scale_types[*type], name) == 0) return 0;
    PyErr_Format(PyExc_ValueError, "scale_type: unknown type '%.60s'", name);
    return -1;
}

/* The tuple (fmt, packed, codes, scales, scale_type, rows, rows_per_matrix, k, tile_rows, tile_cols, global_scale, global_op); the
   arrays are borrowed. */
static int get_planes(PyObject *tuple, cbq_planes *p, PyObject **codes, PyObject **scales) {
    const char *format, *scale_type;
    long long rows, matrix, k, tile_rows, tile_columns;
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "planes: expected a tuple, got %.100s", Py_TYPE(tuple)->tp_name);
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "spOOsLLLLLfi:planes", &format, &p->packed, codes, scales, &scale_type, &rows, &matrix, &k, &tile_rows,
                          &tile_columns, &p->global, &p->global_op)) return -1;
    p->rows = rows, p->matrix = matrix, p->k = k, p->tile_rows = tile_rows, p->tile_columns = tile_columns;
    if (get_plane_format(format, &p->format) || get_scale_type(scale_type, &p->scale_type)) return -1;
    if (p->global_op < CBQ_GLOBAL_NONE || p->global_op > CBQ_GLOBAL_DIVIDE) {
        PyErr_Format(PyExc_ValueError, "global_op: expected 0, 1 or 2, got %d", p->global_op);
        return -1;
    }
    if (cbq_plane_formats[p->format].bits != 6) p->packed = 0;
    return 0;
}
static int get_planes_to_read(PyObject *tuple, cbq_planes *p) {
    PyObject *codes, *scales;
    if (get_planes(tuple, p, &codes, &scales)) return -1;
    return cbq_get_view(codes, "codes", &p->codes) || cbq_get_view(scales, "scales", &p->scales) ? -1 : 0;
}

static PyObject *dequant_planes(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"planes", "out", "dtype", "threads", "isa", "stream", NULL};
    PyObject *planes, *out;
    const char *dtype = "float32", *isa = NULL;
    cbq_dequant_planes_args a = {.stream = -1};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|sizi", names, &planes, &out, &dtype, &a.threads, &isa, &a.stream)) return NULL;
    if (get_planes_to_read(planes, &a.planes) || cbq_get_dtype(dtype, &a.dtype) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_get_out(out, "out", &a.out)) return NULL;
    if (cbq_use_environment(a.threads == 0 && a.out.bytes >= 2 * CBQ_DEQUANT_MIN_PARALLEL)) return NULL;
    if (cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_dequant_planes(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *matmul_planes(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "dtype", "planes", "out", "out_dtype", "m", "precision", "threads", "isa", NULL};
    PyObject *x, *tuple, *out;
    const char *dtype, *out_dtype, *precision = "f32", *isa = NULL;
    long long m;
    cbq_planes planes;
    cbq_matmul_args a = {.planes = &planes};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsOOsL|s" "iz", names, &x, &dtype, &tuple, &out, &out_dtype, &m, &precision, &a.threads, &isa))
        return NULL;
    if (get_planes_to_read(tuple, &planes)) return NULL;
    a.m = m, a.n = planes.rows, a.k = planes.k;
    return cbq_bind_matmul(&a, x, dtype, out, out_dtype, precision, isa);
}

static PyObject *quantize_planes(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "source", "planes", "threads", "isa", NULL};
    PyObject *x, *tuple, *codes, *scales;
    const char *source, *isa = NULL;
    cbq_quantize_planes_args a = {.threads = 0};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsO|iz", names, &x, &source, &tuple, &a.threads, &isa)) return NULL;
    if (get_planes(tuple, &a.planes, &codes, &scales) || cbq_get_source(source, &a.source) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_get_aligned_view(x, "x", &a.x) || cbq_get_out(codes, "codes", &a.codes) || cbq_get_out(scales, "scales", &a.scales)) return NULL;
    a.planes.codes = (cbq_view){a.codes.data, a.codes.bytes};
    a.planes.scales = (cbq_view){a.scales.data, a.scales.bytes};
    if (cbq_use_environment(a.threads == 0 && a.x.bytes >= 2 * CBQ_QUANTIZE_MIN_PARALLEL)) return NULL;
    if (cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_quantize_planes(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    return PyFloat_FromDouble(a.planes.global);
}

PyMethodDef cbq_plane_methods[] = {
    {"plane_formats", plane_formats, METH_NOARGS,
     "plane_formats() -> list of (name, code, bits, always_packed, high_first, group, scales, integer)"},
    {"dequant_planes", (PyCFunction)(void (*)(void))dequant_planes, METH_VARARGS | METH_KEYWORDS,
     "dequant_planes(planes, out, dtype='float32', threads=0, isa=None, stream=-1): decode planes into a contiguous array"},
    {"matmul_planes", (PyCFunction)(void (*)(void))matmul_planes, METH_VARARGS | METH_KEYWORDS,
     "matmul_planes(x, dtype, planes, out, out_dtype, m, precision='f32', threads=0, isa=None): out[m, rows] = x[m, k] w[rows, k]^T"},
    {"quantize_planes", (PyCFunction)(void (*)(void))quantize_planes, METH_VARARGS | METH_KEYWORDS,
     "quantize_planes(x, source, planes, threads=0, isa=None) -> the tensor's scale: encode contiguous numbers of the plain type `source` "
     "into the arrays of `planes`; a scale of the tensor that is 0 is chosen"},
    {NULL, NULL, 0, NULL},
};
