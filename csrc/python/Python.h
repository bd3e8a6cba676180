/* Python.h - the part of CPython's stable ABI (PEP 384) that cffi's generated glue calls.
 *
 * With these declarations a build needs no Python headers, which many distributions package
 * separately, and one library loads into every CPython from 3.10 on. Source:
 * https://docs.python.org/3/c-api/stable.html, which cannot change without a new ABI. */
#ifndef SLUICE_LIMITED_PYTHON_H
#define SLUICE_LIMITED_PYTHON_H
#include <stddef.h>
#include <assert.h> /* CPython's Python.h includes these; the glue relies on it */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef struct _object PyObject;
typedef struct _ts PyThreadState;
typedef ssize_t Py_ssize_t;

#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define PyAPI __attribute__((visibility("default"))) extern

PyAPI PyObject _Py_NoneStruct;
#define Py_None (&_Py_NoneStruct)

PyAPI void Py_IncRef(PyObject *);
PyAPI void Py_DecRef(PyObject *);
#define Py_INCREF(o) Py_IncRef((PyObject *)(o))
#define Py_DECREF(o) Py_DecRef((PyObject *)(o))
#define Py_XDECREF(o) Py_DecRef((PyObject *)(o)) /* Py_DecRef accepts NULL */

PyAPI PyThreadState *PyEval_SaveThread(void);
PyAPI void PyEval_RestoreThread(PyThreadState *);
#define Py_BEGIN_ALLOW_THREADS \
    { \
        PyThreadState *_save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS \
    PyEval_RestoreThread(_save); \
    }

PyAPI int PyArg_UnpackTuple(PyObject *, const char *, Py_ssize_t, Py_ssize_t, ...);
PyAPI PyObject *PyErr_Occurred(void);
PyAPI PyObject *PyImport_ImportModule(const char *);
PyAPI PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyAPI void *PyObject_Malloc(size_t);
PyAPI void PyObject_Free(void *);
PyAPI PyObject *PyBool_FromLong(long);
PyAPI double PyFloat_AsDouble(PyObject *);
PyAPI PyObject *PyFloat_FromDouble(double);
PyAPI PyObject *PyLong_FromLong(long);
PyAPI PyObject *PyLong_FromLongLong(long long);
PyAPI PyObject *PyLong_FromUnsignedLong(unsigned long);
PyAPI PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
PyAPI PyObject *PyLong_FromVoidPtr(void *);
__attribute__((noreturn)) PyAPI void Py_FatalError(const char *);
#endif
