/* Codecs on whole arrays: the kinds of codes, decode_codes, encode_codes. */
#include "bind.h"

#include "../ops/codecs.h"
#include "../registry.h"

static const char *const top_names[] = {[CBQ_TOP_FINITE] = "finite", [CBQ_TOP_ONES] = "ones",    [CBQ_TOP_IEEE] = "ieee",
                                        [CBQ_TOP_FNUZ] = "fnuz",     [CBQ_TOP_FIXED] = "fixed", [CBQ_TOP_SCALE] = "scale"};
static const char *const rule_names[] = {[CBQ_SCALE_FLOOR] = "floor", [CBQ_SCALE_CEIL] = "ceil", [CBQ_SCALE_EVEN] = "even",
                                         [CBQ_SCALE_GGML] = "ggml"};

static PyObject *code_kinds(PyObject *module, PyObject *unused) {
    (void)module; (void)unused;
    PyObject *list = PyList_New(CBQ_N_CODE_KINDS);
    for (int i = 0; list && i < CBQ_N_CODE_KINDS; i++) {
        const cbq_code_kind k = cbq_code_rows[i].kind;
        PyObject *row = Py_BuildValue("(siiiisd)", cbq_code_rows[i].name, cbq_code_bits(k), k.exponent, k.mantissa, k.bias, top_names[k.top],
                                      cbq_largest_value(k));
        if (!row) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, row);
    }
    return list;
}

static int get_kind(const char *name, int *kind) {
    *kind = cbq_find_code_kind(name);
    if (*kind >= 0) return 0;
    PyErr_Format(PyExc_ValueError, "kind: unknown kind of codes '%.60s'", name);
    return -1;
}

static int get_rule(const char *name, int *rule) {
    for (*rule = 0; *rule < (int)(sizeof rule_names / sizeof *rule_names); ++*rule)
        if (strcmp(rule_names[*rule], name) == 0) return 0;
    PyErr_Format(PyExc_ValueError, "rule: expected floor, ceil, even or ggml, got '%.60s'", name);
    return -1;
}

static PyObject *decode_codes(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"codes", "kind", "out", "dtype", "packed", "threads", "isa", "stream", NULL};
    PyObject *codes, *out;
    const char *kind, *dtype = "float32", *isa = NULL;
    cbq_decode_codes_args a = {.stream = -1};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OsO|spizi", names, &codes, &kind, &out, &dtype, &a.packed, &a.threads, &isa, &a.stream))
        return NULL;
    if (get_kind(kind, &a.kind) || cbq_get_dtype(dtype, &a.dtype) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_get_view(codes, "codes", &a.codes) || cbq_get_out(out, "out", &a.out)) return NULL;
    if (cbq_use_environment(a.threads == 0 && a.codes.bytes >= CBQ_CODES_MIN_PARALLEL / 2)) return NULL;
    if (cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_decode_codes(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

static PyObject *encode_codes(PyObject *module, PyObject *args, PyObject *kwargs) {
    (void)module;
    static char *names[] = {"x", "source", "kind", "out", "packed", "saturate", "threads", "isa", "rule", "emax", "mbits", "largest", NULL};
    PyObject *x, *out;
    const char *source, *kind, *isa = NULL, *rule = "floor";
    cbq_encode_codes_args a = {.saturate = 1, .rule = {.largest = 1}};
    cbq_status st = {CBQ_OK, ""};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OssO|ppizsiid", names, &x, &source, &kind, &out, &a.packed, &a.saturate, &a.threads, &isa,
                                     &rule, &a.rule.emax, &a.rule.mbits, &a.rule.largest)) return NULL;
    if (get_kind(kind, &a.kind) || cbq_get_source(source, &a.source) || get_rule(rule, &a.rule.rule) || cbq_check_threads(a.threads)) return NULL;
    if (cbq_get_aligned_view(x, "x", &a.x) || cbq_get_out(out, "out", &a.out)) return NULL;
    if (cbq_use_environment(a.threads == 0 && a.out.bytes >= CBQ_CODES_MIN_PARALLEL / 2)) return NULL;
    if (cbq_get_level(isa, &a.level)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    cbq_encode_codes(&a, &st);
    Py_END_ALLOW_THREADS
    if (st.code) return cbq_raise(&st);
    Py_RETURN_NONE;
}

PyMethodDef cbq_codec_methods[] = {
    {"code_kinds", code_kinds, METH_NOARGS, "code_kinds() -> list of (name, bits, exponent bits, mantissa bits, bias, top codes, largest value)"},
    {"decode_codes", (PyCFunction)(void (*)(void))decode_codes, METH_VARARGS | METH_KEYWORDS,
     "decode_codes(codes, kind, out, dtype='float32', packed=False, threads=0, isa=None, stream=-1): contiguous codes to a contiguous array"},
    {"encode_codes", (PyCFunction)(void (*)(void))encode_codes, METH_VARARGS | METH_KEYWORDS,
     "encode_codes(x, source, kind, out, packed=False, saturate=True, threads=0, isa=None, rule='floor', emax=0, mbits=0, largest=1.0): "
     "a contiguous array of the plain type `source` to codes; the last four are for e8m0"},
    {NULL, NULL, 0, NULL},
};
