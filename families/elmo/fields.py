"""The allowed values of the fields that only an ELMo's configs have."""

from bert_jax.config import rules

RULES: dict[str, rules.Rule] = {
    # Of configs/elmo.py.
    "task.words": rules.one_of("spaces", "punctuation"),
    "task.max_characters": rules.whole(3, 10_000),
    "task.character_size": rules.whole(1, rules.SIZE),
    "task.filters": rules.texts,
    "task.activation": rules.one_of("relu", "tanh"),
    "task.highways": rules.whole(0, 100),
    "task.skip": rules.flag,
    "task.cell_clip": rules.number(),
    "task.projection_clip": rules.number(),
    "task.unroll": rules.whole(1, rules.SIZE),
    "task.fresh": rules.number("[0, 1]"),
    "task.samples": rules.whole(1, rules.SIZE),
    # Of configs/finetune/ with model=elmo.
    "task.elmo_system": rules.one_of("attention", "finetuned"),
    "task.lstm_size": rules.whole(1, rules.SIZE),
    "task.lstm_layers": rules.whole(1, 100),
    "task.elmo_dropout": rules.number("[0, 1)"),
    "task.dropout": rules.number("[0, 1)"),
    "task.classifier_size": rules.whole(0, rules.SIZE),
    "task.tag_scheme": rules.one_of("", "BIO", "IOB1", "BIOES", "none"),
}
