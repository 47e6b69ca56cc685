"""Scripts around bert_jax; each command is `python -m experiments.ROOM.NAME`."""
