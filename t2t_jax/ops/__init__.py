"""Computations that are written for speed, each beside the plain definition that it must equal.

A file has a function `plain`, the shortest definition of what its fast function computes, and a
line on what the fast function gains and where. `tests/test_ops.py` compares values and gradients of
the two. The models and the mechanisms call the fast function.

`tiles` has what the GPU kernels share, and `patterns` what the kernels of sparse attention share.
`config.Model.kernels` says whether kernels are used; they need bfloat16, and a mesh that divides
only the rows of a batch. `tests/test_kernels.py` and `tests/test_sparse_kernels.py` interpret them
on a CPU, and `experiments/tools/gpu.py` checks them on a GPU.
"""
