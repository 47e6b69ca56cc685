"""The defaults of every fine-tuning run (section 4 and appendix A.3).

The other files in this folder take `size` and name the task. Weights and vocabulary
come from `--config.init_from=PATH`. Without it a run starts from random values and
needs `--config.tokenizer.vocab_file`.
"""

from ml_collections import ConfigDict

from configs import base, elmo, gpt, tiny

MODELS = ("bert", "gpt", "elmo")


def get_config(size: str = "base", model: str = "bert") -> ConfigDict:
    """The fields of all tasks.

    Args:
      size: tiny (configs/tiny.py), or one of configs/base.py.
      model: bert, gpt (configs/gpt.py) or elmo (configs/elmo.py).
    """
    if model not in MODELS:
        raise ValueError(f"model={model}: choose one of {', '.join(MODELS)}")
    if model == "gpt":
        config = gpt.get_config(size)
    elif model == "elmo":
        config = elmo.get_config("tiny" if size == "tiny" else "released")
    else:
        config = (
            tiny.get_config("plain") if size == "tiny" else base.get_config(size=size)
        )
    config.phase2.fraction = 0.0

    sizes = config.task
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
    if model == "elmo":
        _elmo(config, size)
        _elmo_sizes(task, sizes)
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


def _elmo(config: ConfigDict, size: str) -> None:
    """ELMo's own fields and values (nyu-mll/GLUE-baselines, src/final_exps.sh)."""
    config.model.architecture = "elmo"
    config.model.vocab_size = 1  # words are read by their characters
    config.model.max_position_embeddings = 100_000  # words; LSTMs have no limit
    task, optimizer, train = config.task, config.optimizer, config.train
    # attention: ELMo is frozen, and its layers' mix learnt; a BiLSTM reads the mix,
    # and each text of a pair the other one. finetuned: all of ELMo learns, and the
    # classifier is linear.
    task.elmo_system = "attention"
    task.lstm_size = 1500  # of each direction of the BiLSTMs
    task.lstm_layers = 2  # of the first BiLSTM; that after the attention has one
    task.elmo_dropout = 0.5  # of ELMo's vectors: AllenNLP's default
    # Of each BiLSTM's input and output; finetuned: of the classifier's input.
    task.dropout = 0.2
    # The classifier's hidden layer; 0: none, as for a number.
    task.classifier_size = 512
    # Where a word ends: punctuation (and spaces; as the released weights read), or
    # spaces. init_from, if it is a run of configs/elmo.py, decides.
    task.words = "punctuation"
    optimizer.name = "adamw"  # without decay: Adam
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
    if size == "tiny":
        task.lstm_size = 64
        task.elmo_dropout = task.dropout = 0.1
        task.classifier_size = 64
        optimizer.learning_rate = 1e-3
        train.batch_size = 32
        # So that train.seeds may be several.
        train.early_stop = 0
        config.evaluate.checkpoint = "last"


def _elmo_sizes(task: ConfigDict, sizes: ConfigDict) -> None:
    """Those of configs/elmo.py; the weights of `init_from` decide."""
    task.max_characters = sizes.max_characters  # ids of a word; longer words are cut
    task.character_size = sizes.character_size  # numbers in each character's vector
    # Convolutions over a word's characters, WIDTH:NUMBER each.
    task.filters = sizes.filters
    task.activation = sizes.activation  # of the convolutions: relu or tanh
    task.highways = sizes.highways  # layers between the convolutions and the projection
    task.skip = sizes.skip  # from the second LSTM on, add its input to its output
    task.cell_clip = sizes.cell_clip  # bound of each LSTM's cell; 0: none
    task.projection_clip = sizes.projection_clip  # bound of its output; 0: none
