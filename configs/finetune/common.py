"""The defaults of every fine-tuning run (section 4 and appendix A.3).

The other files in this folder take `size` and name the task. Weights and vocabulary
come from `--config.init_from=PATH`. Without it a run starts from random values and
needs `--config.tokenizer.vocab_file`.
"""

from ml_collections import ConfigDict

from configs import base, gpt, tiny

MODELS = ("bert", "gpt")


def get_config(size: str = "base", model: str = "bert") -> ConfigDict:
    """The fields of all tasks.

    Args:
      size: tiny (configs/tiny.py), or one of configs/base.py.
      model: bert, or gpt (configs/gpt.py).
    """
    if model not in MODELS:
        raise ValueError(f"model={model}: choose one of {', '.join(MODELS)}")
    if model == "gpt":
        config = gpt.get_config(size)
    else:
        config = tiny.get_config() if size == "tiny" else base.get_config(size=size)
    config.phase2.fraction = 0.0

    config.task = task = ConfigDict()
    task.name = ""
    # Tokens, [CLS] and [SEP] included; what is longer is cut, or read in windows.
    task.max_seq_length = 128
    # A BiLSTM between BERT and the classifier, hidden_size / 2 each way (section 5.1).
    task.bilstm = False
    # True: pad every batch to max_seq_length, as in Google's code; False: to its
    # longest row.
    task.pad_to_max = False

    optimizer = config.optimizer
    optimizer.warmup_steps = 0
    optimizer.warmup_fraction = 0.1
    optimizer.learning_rate = 3e-5
    train = config.train
    train.num_steps = 0  # num_epochs decides
    train.num_epochs = 3.0
    train.batch_size = 32
    train.micro_batches = 1
    train.log_every = 50
    train.eval_every = 0
    train.eval_every_epoch = True
    config.evaluate.batch_size = 64
    config.evaluate.splits = ("dev", "test")
    config.checkpoint.save_every = 500
    config.checkpoint.keep = 1
    if size == "tiny":
        # So small a model still has nearly everything to learn.
        optimizer.name = "adamw"
        optimizer.learning_rate = 5e-4
        config.model.hidden_dropout_prob = 0.1
        config.model.attention_probs_dropout_prob = 0.1
    if model == "gpt":
        _gpt(config, size)
    return config


def _gpt(config: ConfigDict, size: str) -> None:
    """GPT's own fields and values (openai/finetune-transformer-lm, train.py)."""
    # Factor of the language model's loss on the same rows, which is added to the
    # task's; 0: none.
    config.task.lm_coef = 0.5
    # Pairs: read both orders, and add their vectors (for similarity).
    config.task.both_orders = False
    optimizer = config.optimizer
    optimizer.name = "openai_adam"
    optimizer.schedule = "openai_linear"
    optimizer.warmup_fraction = 0.002
    if size != "tiny":
        optimizer.learning_rate = 6.25e-5
