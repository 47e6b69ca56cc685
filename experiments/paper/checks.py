"""Whether the steps and the text are enough for a table's pre-training."""

from ml_collections import ConfigDict

from bert_jax.data.corpus import FILE_KINDS
from bert_jax.data.lines import COMPRESSED
from bert_jax.errors import UserError
from bert_jax.runtime import storage
from experiments.paper import tables

# Bytes of English text in a word with its space, and in a byte of a compressed file.
_WORD, _GZIP = 6, 2.8
# Readings of the text: the paper's run reads its own 40 times (appendix A.2).
_PAPER_READINGS, _MOST_READINGS = 40, 1000


def steps(config: ConfigDict) -> None:
    """Raises UserError where the steps are too few."""
    steps, warmup = config.train.num_steps, config.optimizer.warmup_steps
    if steps < len(tables.SHARES):
        raise UserError(
            f"--config.train.num_steps={steps}: at least {len(tables.SHARES)} are "
            "needed, because figure 5 divides them"
        )
    if warmup >= steps:
        raise UserError(
            f"--config.train.num_steps={steps}: all of them are warm-up; set --config."
            f"optimizer.warmup_steps as well, now {warmup} (the paper: a hundredth of "
            "the steps)"
        )


def corpus(config: ConfigDict, size: str, to_read: int) -> None:
    """Weighs the text in files.

    Raises:
      UserError: a source is unknown, a file is missing, or the run would read the text
        more than _MOST_READINGS times.
    """
    total = 0.0
    for source in config.corpus.sources:
        kind, _, pattern = source.partition(":")
        if kind in ("pydocs", "tfds", "hf"):
            return
        if kind not in FILE_KINDS:
            kinds = ", ".join(f"{name}:GLOB" for name in FILE_KINDS)
            raise UserError(
                f"--corpus={source}: write {kinds}, hf:NAME, tfds:NAME or pydocs"
            )
        files = storage.find(pattern)
        if not files:
            raise UserError(f"--corpus={source}: no file matches")
        packed = (".parquet", *COMPRESSED)
        for name, about in files.items():
            total += int(about.state[1]) * (_GZIP if name.endswith(packed) else 1)
    words = total / _WORD
    read = config.train.num_steps * config.train.batch_size
    read = to_read or read * config.corpus.max_seq_length
    if read > _MOST_READINGS * words:
        what, less = f"{config.train.num_steps:,} steps of", "--config.train.num_steps"
        if to_read:
            what, less = f"{to_read:,} words at", "--words"
        raise UserError(
            f"--corpus: some {words:,.0f} words, which {what} size={size} would read "
            f"{read / max(words, 1):,.0f} times (the paper: {_PAPER_READINGS}); name "
            f"more text, a smaller --size or fewer {less}"
        )
