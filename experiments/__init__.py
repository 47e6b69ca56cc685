"""Scripts around bert_jax. Each command is `python -m experiments.ROOM.NAME`."""
