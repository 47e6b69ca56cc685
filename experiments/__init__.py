"""Scripts around bert_jax; each command is `python -m experiments.ROOM.NAME`."""

import sys

# `python -m experiments.NAME` imports this file first; till then argv[0] is "-m".
if sys.argv[:1] == ["-m"]:
    from experiments.lib import started

    started.check(sys.orig_argv)
