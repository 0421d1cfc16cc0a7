"""Computations that are written for speed, each beside the plain definition that it must equal.

Every file has one function, `plain`, which says in the fewest words what the fast one computes, and
a line on what the fast one gains and where. `tests/test_ops.py` holds each to its plain definition,
values and gradients. The models and the mechanisms call the fast one.

`tiles` is what the kernels for GPUs share, and `patterns` has those of sparse attention.
`config.Model.kernels` says whether they are used; they need bfloat16, and a mesh that divides
nothing but rows. `tests/test_kernels.py` and `tests/test_sparse_kernels.py` interpret them on a
CPU, and `experiments/gpu.py` checks them on a GPU.
"""
