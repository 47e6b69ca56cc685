"""The fields that only an ELMo's config has.

The defaults are those of the released model and of its training (allenai/bilm-tf,
bin/train_elmo.py).
"""

from typing import Any, NoReturn

from bert_jax.config.field import SHARE, SIZE, Field
from bert_jax.config.fields import OWN
from bert_jax.errors import UserError
from bert_jax.registry import OPTIMIZERS
from bert_jax.tasks import TASKS

NAME = "elmo"  # `config.task.name`
FIELDS = {
    "task.filters": Field(
        ("1:32", "2:32", "3:64", "4:128", "5:256", "6:512", "7:1024"),
        doc="Convolutions over a word's characters, WIDTH:NUMBER each.",
    ),
    "task.activation": Field(
        "relu", ("relu", "tanh"), doc="Activation of the convolutions: relu or tanh"
    ),
    "task.highways": Field(
        2,
        "[0, 100]",
        doc="Layers between the convolutions and the projection.",
    ),
    "task.character_size": Field(16, SIZE, doc="Numbers in each character's vector"),
    "task.max_characters": Field(
        50,
        "[3, 10000]",
        doc="Number of character ids in a word. Longer words are cut.",
    ),
    "task.cell_clip": Field(3.0, doc="Bound of each LSTM's cell. 0 means none."),
    "task.projection_clip": Field(
        3.0, doc="Bound of each LSTM's output. 0 means none."
    ),
    "task.skip": Field(
        True, doc="Whether each LSTM but the first adds its input to its output"
    ),
    "task.word_ends": Field(
        "spaces",
        ("spaces", "punctuation"),
        doc="End of a word: spaces (the text has been cut into words, as the 1B "
        "Word Benchmark has), or punctuation (also there, and each such "
        "character is a word, as the released weights read).",
    ),
    "task.unroll": Field(
        20,
        SIZE,
        doc="Words of a row in each step. The next step begins with the state at "
        "its end.",
    ),
    "task.fresh": Field(
        0.0,
        SHARE,
        doc="Fraction of the rows whose state begins at 0 again, drawn in each "
        "step. 0 means never, as in bilm. Then a model may come to need a "
        "state with which no text begins.",
    ),
    "task.samples": Field(
        8192,
        SIZE,
        doc="Words in the softmax of a training step, drawn again for each. "
        "Evaluation, and a vocabulary that is no larger, take all.",
    ),
}


def register() -> None:
    """Adds the fields and the optimizer, as a config file adds its own. To main
    the task is an error, which names the other program."""
    OWN.update(FIELDS)
    TASKS[NAME] = "bert_jax.families.elmo.fields:refuse"
    OPTIMIZERS["adagrad"] = "bert_jax.families.elmo.optimizer:adagrad"


def refuse(*_: Any) -> NoReturn:
    """Raises UserError."""
    raise UserError(
        f"config.task.name={NAME}: has a program of its own; give these flags to "
        "python -m bert_jax.families.elmo"
    )
