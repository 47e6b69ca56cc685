"""The fields that only an ELMo's configs have, or have otherwise.

The defaults are those of the released model and of its training (allenai/bilm-tf,
bin/train_elmo.py). A task's are those of nyu-mll/GLUE-baselines, src/final_exps.sh.
"""

import dataclasses

from bert_jax.config import fields
from bert_jax.config.field import SHARE, SIZE, Field

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers")

# Fields of pre-training and of a task.
MODEL = {
    "task.filters": Field(
        ("1:32", "2:32", "3:64", "4:128", "5:256", "6:512", "7:1024"),
        fixed_by="weights",
        doc="Convolutions over a word's characters, WIDTH:NUMBER each.",
    ),
    "task.activation": Field(
        "relu", ("relu", "tanh"), fixed_by="weights", doc="for the convolutions"
    ),
    "task.highways": Field(
        2,
        "[0, 100]",
        fixed_by="weights",
        doc="Layers between the convolutions and the projection.",
    ),
    "task.character_size": Field(
        16, SIZE, fixed_by="weights", doc="numbers in each character's vector"
    ),
    "task.max_characters": Field(
        50,
        "[3, 10000]",
        fixed_by="weights",
        doc="Number of character ids in a word. Longer words are cut.",
    ),
    "task.cell_clip": Field(
        3.0, fixed_by="weights", doc="bound of each LSTM's cell. 0 means none"
    ),
    "task.projection_clip": Field(
        3.0, fixed_by="weights", doc="output bound. 0 means none"
    ),
    "task.skip": Field(
        True,
        fixed_by="weights",
        doc="From the second LSTM on, add its input to its output.",
    ),
    "task.words": Field(
        "spaces",
        ("spaces", "punctuation"),
        fixed_by="weights",
        doc="Where a word ends: spaces (the text has been cut into words, as the "
        "1B Word Benchmark has), or punctuation (also there, and each such "
        "character is a word, as the released weights read). For a task a run "
        "of configs/elmo.py in init_from decides.",
    ),
}
PRETRAINING = {
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
FINETUNING = {
    "task.elmo_system": Field(
        "attention",
        ("attention", "finetuned"),
        doc="attention: ELMo is frozen, and its layers' mix learned. A BiLSTM "
        "reads the mix, and each text of a pair the other one. finetuned: all "
        "of ELMo learns, and the classifier is linear.",
    ),
    "task.lstm_size": Field(1500, SIZE, doc="per direction of the BiLSTMs"),
    "task.lstm_layers": Field(
        2,
        "[1, 100]",
        doc="Layers of the first BiLSTM. The one after the attention has one.",
    ),
    "task.elmo_dropout": Field(
        0.5, "[0, 1)", doc="rate on ELMo's vectors: AllenNLP's default"
    ),
    "task.dropout": Field(
        0.2,
        "[0, 1)",
        doc="Rate on each BiLSTM's input and output, or (finetuned) on the "
        "classifier's input.",
    ),
    "task.classifier_size": Field(
        512,
        "[0, 16777216]",
        doc="The classifier's hidden layer. 0 means none, as for a number.",
    ),
}
FIELDS = {
    **MODEL,
    **PRETRAINING,
    **FINETUNING,
    # An ELMo has only three sizes of `config.model`. How words are written counts too.
    **{
        name: dataclasses.replace(field, fixed_by="run")
        for name, field in fields.FIELDS.items()
        if field.from_weights and name.removeprefix("model.") not in _SIZES
    },
    **{
        f"tokenizer.{name}": dataclasses.replace(
            fields.FIELDS[f"tokenizer.{name}"], fixed_by="weights"
        )
        for name in ("lowercase", "strip_accents")
    },
}
