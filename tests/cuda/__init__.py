"""CUDA kernels and the module around them, tested without a GPU: on the CPU (shim/), and as nvcc's PTX (tests/ptx)."""
