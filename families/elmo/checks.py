"""What a config may not ask of an ELMo's pre-training."""

from ml_collections import ConfigDict

from bert_jax.errors import UserError


def refuse(config: ConfigDict) -> None:
    """Raises UserError for what an ELMo does not use."""
    wrong = {
        "init_from": (config.init_from, "", "an ELMo starts from random values"),
        "tokenizer.vocab_file": (
            *(config.tokenizer.vocab_file, ""),
            "its words are counted in the text",
        ),
        "model.dtype": (config.model.dtype, "float32", "ELMo is float32"),
        "corpus.packing": (config.corpus.packing, False, "there are no rows to pack"),
        "corpus.weights": (
            *(tuple(config.corpus.weights), ()),
            "an epoch has every sentence once",
        ),
        "corpus.runner": (config.corpus.runner, "", "one process counts the words"),
        "phase2.fraction": (config.phase2.fraction, 0.0, "there is one phase"),
        "train.micro_batches": (
            *(config.train.micro_batches, 1),
            "the state goes from step to step",
        ),
        "evaluate.splits": (
            *(tuple(config.evaluate.splits), ("dev",)),
            "one split is held back",
        ),
    }
    for name, (value, only, why) in wrong.items():
        if value != only:
            raise UserError(f"config.{name}={value}: {why}; leave it at {only!r}")
    if config.tokenizer.vocab_size < 4:
        raise UserError(
            f"config.tokenizer.vocab_size={config.tokenizer.vocab_size}: at least 4, "
            "three marks and a word"
        )
    if not config.train.num_steps:
        raise UserError("config.train.num_steps=0: an ELMo counts steps, not epochs")
