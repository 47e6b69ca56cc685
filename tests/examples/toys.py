"""The files of examples/, run on a toy model and text."""

from pathlib import Path

from bert_jax.config import configuration
from tests.forked import ROOT

FIELDS = {
    **{"model.hidden_size": 32, "model.num_attention_heads": 2},
    **{"model.num_hidden_layers": 2, "model.intermediate_size": 64},
    **{"model.max_position_embeddings": 32, "model.hidden_dropout_prob": 0.1},
    **{"tokenizer.vocab_size": 64, "corpus.max_seq_length": 32},
    **{"corpus.dev_fraction": 0.2, "masking.max_predictions_per_seq": 6},
    **{"train.num_steps": 12, "train.batch_size": 16, "train.log_every": 1},
    **{"task.word_initializer": "normal", "evaluate.batch_size": 16},
}


def path(name: str) -> str:
    return str(ROOT / "examples" / f"{name}.py")


def flags(corpus: Path, data: Path, **fields) -> list[str]:
    """Returns overrides that make an example's run of pre-training small.

    A field's dots are two underscores here.
    """
    own = {name.replace("__", "."): value for name, value in fields.items()}
    places = {
        "corpus.sources": (f"sentences:{corpus}",),
        "corpus.data_dir": str(data),
    }
    return [f"--config.{n}={v}" for n, v in (FIELDS | places | own).items()]


def config(name: str, corpus: Path, data: Path, **fields):
    return configuration.load_config(path(name), flags(corpus, data, **fields))
