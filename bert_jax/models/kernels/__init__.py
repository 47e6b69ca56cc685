"""Kernels for GPUs and TPUs, imported where a config selects one."""
