"""Kernels for GPUs and TPUs, imported when `model.attention` or `epilogue` asks for one."""
