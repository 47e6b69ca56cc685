"""The fields that only an ELMo's configs have, or have otherwise.

The defaults are those of the released model and of its training (allenai/bilm-tf,
bin/train_elmo.py). A task's are those of nyu-mll/GLUE-baselines, src/final_exps.sh.
"""

import dataclasses
import functools

from bert_jax.config import fields
from bert_jax.config.field import SHARE, SIZE, Field

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers")
_dropout = functools.partial(Field, allowed="[0, 1)")
_of_weights = functools.partial(Field, weights="fixed")

# Fields of pre-training and of a task.
MODEL = {
    # Convolutions over a word's characters, WIDTH:NUMBER each.
    "task.filters": _of_weights(
        ("1:32", "2:32", "3:64", "4:128", "5:256", "6:512", "7:1024")
    ),
    "task.activation": _of_weights("relu", ("relu", "tanh")),  # for the convolutions
    # Layers between the convolutions and the projection.
    "task.highways": _of_weights(2, "[0, 100]"),
    "task.character_size": _of_weights(16, SIZE),  # numbers in each character's vector
    # Number of character ids in a word. Longer words are cut.
    "task.max_characters": _of_weights(50, "[3, 10000]"),
    "task.cell_clip": _of_weights(3.0),  # bound of each LSTM's cell. 0 means none
    "task.projection_clip": _of_weights(3.0),  # output bound. 0 means none
    # From the second LSTM on, add its input to its output.
    "task.skip": _of_weights(True),
    # Where a word ends: spaces (the text has been cut into words, as the 1B Word
    # Benchmark has), or punctuation (also there, and each such character is a word, as
    # the released weights read). For a task a run of configs/elmo.py in init_from
    # decides.
    "task.words": _of_weights("spaces", ("spaces", "punctuation")),
}
PRETRAINING = {
    # Words of a row in each step. The next step begins with the state at its end.
    "task.unroll": Field(20, SIZE),
    # Fraction of the rows whose state begins at 0 again, drawn in each step. 0 means
    # never, as in bilm. Then a model may come to need a state with which no text
    # begins.
    "task.fresh": Field(0.0, SHARE),
    # Words in the softmax of a training step, drawn again for each. Evaluation, and a
    # vocabulary that is no larger, take all.
    "task.samples": Field(8192, SIZE),
}
FINETUNING = {
    # attention: ELMo is frozen, and its layers' mix learned. A BiLSTM reads the mix,
    # and each text of a pair the other one. finetuned: all of ELMo learns, and the
    # classifier is linear.
    "task.elmo_system": Field("attention", ("attention", "finetuned")),
    "task.lstm_size": Field(1500, SIZE),  # per direction of the BiLSTMs
    # Layers of the first BiLSTM. The one after the attention has one.
    "task.lstm_layers": Field(2, "[1, 100]"),
    "task.elmo_dropout": _dropout(0.5),  # rate on ELMo's vectors: AllenNLP's default
    # Rate on each BiLSTM's input and output, or (finetuned) on the classifier's input.
    "task.dropout": _dropout(0.2),
    # The classifier's hidden layer. 0 means none, as for a number.
    "task.classifier_size": Field(512, "[0, 16777216]"),
}
FIELDS = {
    **MODEL,
    **PRETRAINING,
    **FINETUNING,
    # An ELMo has only three sizes of `config.model`. How words are written counts too.
    **{
        name: dataclasses.replace(field, weights="")
        for name, field in fields.FIELDS.items()
        if field.weights and name.removeprefix("model.") not in _SIZES
    },
    **{
        f"tokenizer.{name}": dataclasses.replace(
            fields.FIELDS[f"tokenizer.{name}"], weights="fixed"
        )
        for name in ("lowercase", "strip_accents")
    },
}
