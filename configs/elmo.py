"""ELMo: two LSTM language models, one in each direction (Peters et al. 2018).

    python -m bert_jax.families.elmo --config=configs/elmo.py:size=tiny

The values are those of the released model and of its training on the 1B Word Benchmark
(allenai/bilm-tf, bin/train_elmo.py): 10 epochs of 768,648,884 words. `size=tiny` learns
from the documentation of the Python installation, in some ten minutes on two cores.
Fields of `model` that are not here do nothing. See docs/elmo.md.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration, fields
from bert_jax.families.elmo import fields as own

SIZES = ("released", "tiny")
own.register()


def get_config(size: str = "released") -> ConfigDict:
    """Returns the config of the released size, or a tiny one.

    Args:
      size: Name from SIZES.
    """
    if size not in SIZES:
        raise ValueError(f"size={size}: choose one of {', '.join(SIZES)}")
    config = configuration.with_defaults()
    config.model.hidden_size = 512  # a word's vector and each direction's output
    config.model.intermediate_size = 4096  # the cell of each LSTM
    config.model.num_hidden_layers = 2  # LSTMs in each direction
    # On each layer's input and the last one's output.
    config.model.hidden_dropout_prob = 0.1
    config.task = fields.default_config(own.FIELDS).task
    config.task.name = own.NAME
    # Words to predict: the most frequent ones, and three marks (of a sentence's
    # beginning and end, and of the words that are not among them).
    config.tokenizer.vocab_size = 793_471
    config.tokenizer.lowercase = False
    config.corpus.sources = ("hf:dvruette/lm1b",)
    config.optimizer.name = "adagrad"
    config.optimizer.learning_rate = 0.2
    config.optimizer.warmup_steps = 0
    config.optimizer.decay_power = 0.0  # a constant rate
    config.optimizer.weight_decay = 0.0
    config.optimizer.clip_norm = 10.0  # on the gradient of a row's loss: unroll words
    config.train.num_steps = 1_000_840
    config.train.batch_size = 384  # 128 on each of three GPUs
    config.evaluate.batch_size = 16  # rows of ten windows
    config.predict.vectors = "words"
    config.predict.layers = (0, 1, 2)
    if size == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    config.model.hidden_size = 64
    config.model.intermediate_size = 256
    config.task.word_ends = "punctuation"
    # Without it the backward direction locked: 1.4 nats worse from 0 than in training.
    config.task.fresh = 0.05
    config.task.filters = ("1:16", "2:16", "3:32", "4:64")
    config.tokenizer.vocab_size = 5000
    config.corpus.sources = ("pydocs",)
    config.corpus.dev_fraction = 0.02
    config.train.num_steps = 3000
    config.train.batch_size = 32
    config.train.eval_every = 1000
    config.checkpoint.save_every = 500
