"""Attention kernels for GPUs and TPUs, imported when `model.attention` asks for one."""
