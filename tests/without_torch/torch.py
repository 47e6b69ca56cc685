"""Stands before torch on the path of the processes that tests start: where torch is
installed, tensorboardX imports it, which takes as long as all else."""

raise ImportError("not for the processes that tests start")
