"""ELMo: two LSTM language models, one in each direction (Peters et al. 2018).

    python -m bert_jax.main --config=configs/elmo.py:size=tiny

The values are those of the released model and of its training on the 1B Word Benchmark
(allenai/bilm-tf, bin/train_elmo.py): 10 epochs of 768,648,884 words. `size=tiny` learns
from the documentation of the Python installation, in some ten minutes on two cores.
Fields of `model` that are not here do nothing. See docs/elmo.md.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration, fields
from bert_jax.families.elmo import fields as own

SIZES = ("released", "tiny")


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
    config.task = fields.default_config({**own.MODEL, **own.PRETRAINING}).task
    config.task.name = "elmo"
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
    if size == "tiny":
        _tiny(config)
    return config


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


def for_finetuning(size: str) -> ConfigDict:
    """Returns the config that a task starts from."""
    return get_config("tiny" if size == "tiny" else "released")


def finetune(config: ConfigDict, recipe: str) -> None:
    """Sets ELMo's own fields and values for a task (nyu-mll/GLUE-baselines,
    src/final_exps.sh), with Adam: AdamW without decay."""
    config.model.architecture = "elmo"
    config.model.vocab_size = 1  # words are read by their characters
    config.model.max_position_embeddings = 100_000  # words. LSTMs have no limit
    task, optimizer, train = config.task, config.optimizer, config.train
    task.update(fields.default_config(own.MODEL | own.FINETUNING).task)
    task.filters = for_finetuning(
        recipe
    ).task.filters  # the weights of `init_from` decide
    task.words = "punctuation"  # as the released weights read
    optimizer.name = "adamw"
    optimizer.learning_rate = 1e-4
    optimizer.warmup_fraction = 0.0
    optimizer.decay_power = 0.0  # a constant rate
    optimizer.weight_decay = 0.0
    optimizer.eps = 1e-8
    optimizer.clip_norm = 5.0
    train.batch_size = 128
    train.num_epochs = 10.0
    train.early_stop = 5
    config.evaluate.checkpoint = "best"
    is_tiny = recipe == "tiny"
    if is_tiny:
        task.lstm_size = 64
        task.elmo_dropout = task.dropout = 0.1
        task.classifier_size = 64
        optimizer.learning_rate = 1e-3
        train.batch_size = 32
        # So that train.seeds may be several.
        train.early_stop = 0
        config.evaluate.checkpoint = "last"
    if task.name == "ner":
        _ner(config, is_tiny)
    if task.name == "squad":
        _squad(config, is_tiny)
    if task.name == "swag":
        _swag(config, is_tiny)


def _ner(config: ConfigDict, is_tiny: bool) -> None:
    """Sets AllenNLP's values (training_config/ner_elmo.jsonnet)."""
    task = config.task
    task.lstm_size = 200
    task.lstm_layers = 2
    task.elmo_dropout = 0.0
    task.dropout = 0.5
    task.classifier_size = 0  # not used
    config.optimizer.learning_rate = 1e-3
    config.train.batch_size = 64
    config.train.num_epochs = 15.0 if is_tiny else 75.0
    if not is_tiny:
        config.train.early_stop = 25


def _squad(config: ConfigDict, is_tiny: bool) -> None:
    """Sets AllenNLP's values for BiDAF (training_config/bidaf_elmo.jsonnet).

    Lengths are in words.
    """
    task = config.task
    task.max_answer_length = 17  # Peters et al. 2018, appendix
    task.lstm_size = 100
    task.lstm_layers = 1
    task.elmo_dropout = 0.0
    task.dropout = 0.2
    task.classifier_size = 0  # not used
    config.optimizer.learning_rate = 1e-3
    config.optimizer.beta2 = 0.9
    config.train.batch_size = 40
    config.train.num_epochs = 6.0 if is_tiny else 20.0
    if not is_tiny:
        config.train.early_stop = 10


def _swag(config: ConfigDict, is_tiny: bool) -> None:
    """Sets the values of rowanz/swagaf, swag_baselines/esim/train-elmo.json.

    Its rate that halves is left out.
    """
    task = config.task
    task.lstm_layers = 1
    if is_tiny:
        config.train.num_epochs = 10.0
        return
    task.lstm_size = 300
    task.classifier_size = 300
    task.elmo_dropout = 0.0
    task.dropout = 0.5
    config.optimizer.learning_rate = 4e-4
    config.optimizer.clip_norm = 10.0
    config.train.batch_size = 32
    config.train.num_epochs = 75.0
