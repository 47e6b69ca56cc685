"""Kernels for GPUs and TPUs, imported where a config asks for one."""
