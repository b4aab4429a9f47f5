/* What the files of bind/ share. This folder alone knows Python. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL cbq_numpy_api
#if !defined(CBQ_BIND_MODULE)
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../array.h"
#include "../dispatch.h"
#include "../status.h"
#include "../view.h"

/* Raises what st says, and returns NULL. The only way from a C error to a Python one. */
PyObject *cbq_raise(const cbq_status *st);

/* A C-contiguous array's memory. `name` is the argument's name in messages. */
int cbq_get_view(PyObject *object, const char *name, cbq_view *view);
int cbq_get_out(PyObject *object, const char *name, cbq_out *out);
int cbq_get_aligned_view(PyObject *object, const char *name, cbq_view *view); /* of numbers that C reads as such */

/* An array of float32, float16 or uint16 (which stands for bfloat16) at any strides. */
int cbq_get_array(PyObject *object, const char *name, int writable, cbq_array *array);
/* A writable C-contiguous array of int32. */
int cbq_get_int32(PyObject *object, const char *name, cbq_out *out);

/* The index of a format, CBQ_F32 .., and whether a number of threads (0: the default) can be; -1 with an exception. */
int cbq_get_format(const char *name, int *format);
int cbq_get_dtype(const char *name, int *dtype);
int cbq_get_source(const char *name, int *format); /* of a plain type */
/* The named level, or for NULL the one in use. */
int cbq_get_level(const char *name, const cbq_level **level);
int cbq_check_threads(int threads);

/* Applies CBQUANT_ISA and CBQUANT_NUM_THREADS at the first call, and the second at each call that says it needs the number
   of threads. Every function that needs either calls it first. An error is raised and not remembered. */
int cbq_use_environment(int needs_threads);

/* The rest of a product whose weights and sizes are known. */
struct cbq_matmul_args;
PyObject *cbq_bind_matmul(struct cbq_matmul_args *a, PyObject *x, const char *dtype, PyObject *out, const char *out_dtype, const char *precision,
                          const char *isa);

extern PyMethodDef cbq_decode_methods[], cbq_encode_methods[], cbq_machine_methods[], cbq_product_methods[], cbq_codec_methods[],
    cbq_plane_methods[], cbq_operator_methods[], cbq_attention_methods[];
