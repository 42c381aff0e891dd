"""Kernels for GPUs: a language whose values are tiles, programs in it for what models compute, and what renders, checks and
runs them. Nothing here knows of ggml."""
