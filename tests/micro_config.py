"""Config files of runs that are small enough for a test."""

from pathlib import Path

_PRETRAINING = """
extends = "EXTENDS"

def get_config(config):
    config.model.hidden_size = 32
    config.model.num_attention_heads = 2
    config.model.num_hidden_layers = 1
    config.model.intermediate_size = 64
    config.model.max_position_embeddings = 32
    config.model.hidden_dropout_prob = 0.0  # a fifth less to compile
    config.model.attention_probs_dropout_prob = 0.0
    config.tokenizer.vocab_size = 64
    config.corpus.sources = ("sentences:CORPUS",)
    config.corpus.data_dir = "FOLDER/data"
    config.corpus.max_seq_length = 32
    config.corpus.dev_fraction = 0.2
    config.masking.max_predictions_per_seq = 6
    config.train.num_steps = 20
    config.train.batch_size = 16
    config.train.log_every = 1
    config.evaluate.batch_size = 16
    config.checkpoint.save_every = 10
OWN
    return config
"""
_FINETUNING = """
extends = "EXTENDS"

def get_config(config):
    config.init_from = "PRETRAINED"
    config.task.train_file = "FOLDER/train.jsonl"
    config.task.dev_file = "FOLDER/dev.jsonl"
    config.model.hidden_dropout_prob = 0.0
    config.model.attention_probs_dropout_prob = 0.0
    config.task.max_seq_length = 32
    config.optimizer.learning_rate = 1e-2
    config.train.num_steps = 60
    config.train.batch_size = 16
    config.evaluate.batch_size = 16
OWN
    return config
"""


def pretraining(path: Path, corpus: Path, extends: str, own: str = "") -> Path:
    """Writes a config file for pre-training on a corpus of sentences.

    Args:
      extends: Config that it changes.
      own: Additional lines, which come last.
    """
    text = _PRETRAINING.replace("CORPUS", str(corpus))
    return _written(path, text, extends, own)


def finetuning(path: Path, pretrained: Path, extends: str, own: str = "") -> Path:
    """Writes a config file for fine-tuning on train.jsonl and dev.jsonl next to it."""
    text = _FINETUNING.replace("PRETRAINED", str(pretrained))
    return _written(path, text, extends, own)


def _written(path: Path, text: str, extends: str, own: str) -> Path:
    lines = "".join(f"    {line.strip()}\n" for line in own.strip().splitlines())
    text = text.replace("EXTENDS", extends).replace("OWN\n", lines)
    path.write_text(text.replace("FOLDER", str(path.parent)))
    return path
