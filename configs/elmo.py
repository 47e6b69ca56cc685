"""ELMo: two LSTM language models, one in each direction (Peters et al. 2018).

    python -m bert_jax.main --config=configs/elmo.py:size=tiny

The values are those of the released model and of its training on the 1B Word Benchmark
(allenai/bilm-tf, bin/train_elmo.py): 10 epochs of 768,648,884 words. `size=tiny` learns
from the documentation of the Python installation, in some ten minutes on two cores.
Fields of `model` that are not here do nothing. docs/families.md says more.
"""

from ml_collections import ConfigDict

from configs import common

SIZES = ("released", "tiny")


def get_config(size: str = "released") -> ConfigDict:
    """The released size, or a tiny one.

    Args:
      size: one of SIZES.
    """
    if size not in SIZES:
        raise ValueError(f"size={size}: choose one of {', '.join(SIZES)}")
    config = common.get_config()
    config.model.hidden_size = 512  # of a word's vector and of each direction's output
    config.model.intermediate_size = 4096  # the cell of each LSTM
    config.model.num_hidden_layers = 2  # LSTMs in each direction
    # Of each layer's input and the last one's output.
    config.model.hidden_dropout_prob = 0.1
    config.task = _task()
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
    config.optimizer.clip_norm = 10.0  # of the gradient of a row's loss: unroll words
    config.train.num_steps = 1_000_840
    config.train.batch_size = 384  # 128 on each of three GPUs
    config.evaluate.batch_size = 16  # rows of ten windows
    if size == "tiny":
        _tiny(config)
    return config


def _task() -> ConfigDict:
    """What ELMo adds."""
    task = ConfigDict()
    task.name = "elmo"
    # Where a word ends: spaces (the text has been cut into words, as the 1B Word
    # Benchmark has), or punctuation (also there; each such character is a word).
    task.words = "spaces"
    task.max_characters = 50  # ids of a word; longer words are cut
    task.character_size = 16  # numbers in each character's vector
    # Convolutions over a word's characters, WIDTH:NUMBER each.
    task.filters = ("1:32", "2:32", "3:64", "4:128", "5:256", "6:512", "7:1024")
    task.activation = "relu"  # of the convolutions: relu or tanh
    task.highways = 2  # layers between the convolutions and the projection
    task.skip = True  # from the second LSTM on, add its input to its output
    task.cell_clip = 3.0  # bound of each LSTM's cell; 0: none
    task.projection_clip = 3.0  # bound of each LSTM's output; 0: none
    task.unroll = 20  # words of a row in each step; the state goes on to the next step
    # Share of the rows whose state begins at 0 again, drawn in each step. 0: never, as
    # in bilm; then a model may come to need a state with which no text begins.
    task.fresh = 0.0
    # Words in the softmax of a training step, drawn anew for each; evaluation, and a
    # vocabulary that is no larger, take all.
    task.samples = 8192
    return task


def _tiny(config: ConfigDict) -> None:
    config.model.hidden_size = 64
    config.model.intermediate_size = 256
    config.task.words = "punctuation"
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
