"""A small BERT that learns from real English in a few minutes on a laptop's CPU.

    ./launch.sh

The text is the documentation strings of the Python installation. The size is that of
BERT-Tiny (Turc et al. 2019), with twice the heads. It ends some 1.9 nats below the
unigram loss; experiments/results/tiny.txt shows a run.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    config = common.get_config()
    config.model.hidden_size = 128
    config.model.num_hidden_layers = 2
    config.model.num_attention_heads = 4
    config.model.intermediate_size = 512
    # The model sees no text often enough to memorize it.
    config.model.hidden_dropout_prob = 0.0
    config.model.attention_probs_dropout_prob = 0.0
    # 0.02 is meant for 768 inputs per unit; this keeps the spread of their sum.
    config.model.initializer_range = 0.05
    config.tokenizer.vocab_size = 8000
    config.corpus.sources = ("pydocs",)
    config.corpus.max_seq_length = 64
    config.corpus.dev_fraction = 0.02
    config.masking.max_predictions_per_seq = 10
    # BERT's Adam starts with steps three times as long, too long at this rate.
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup_steps = 0
    config.optimizer.warmup_fraction = 0.1
    config.train.num_steps = 9000
    config.train.batch_size = 16
    config.train.log_every = 500
    config.train.eval_every = 0
    config.evaluate.batch_size = 64
    config.checkpoint.save_every = 1000
    return config
