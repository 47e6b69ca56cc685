"""A small BERT that learns from real English in minutes on a laptop's CPU.

    ./launch.sh

The text is the docstrings of the Python installation. The size is that of BERT-Tiny
(Turc et al. 2019), with twice the heads. experiments/results/tiny.txt shows a run, and
the loss against seconds of the other settings that were tried.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration

RECIPES = ("fast", "plain")


def get_config(recipe: str = "fast") -> ConfigDict:
    """Returns the config of the tiny model, its text, and its training.

    Args:
      recipe: Training recipe, fast or plain: AdamW, for 9,000 steps. Systems are
        compared with it (experiments.paper), and fine-tuning configs with recipe=tiny
        start from it.
    """
    if recipe not in RECIPES:
        raise ValueError(f"recipe={recipe}: choose one of {', '.join(RECIPES)}")
    config = configuration.with_defaults()
    config.model.hidden_size = 128
    config.model.num_hidden_layers = 2
    config.model.num_attention_heads = 4
    config.model.intermediate_size = 512
    # The model sees no text often enough to memorize it.
    config.model.hidden_dropout_prob = 0.0
    config.model.attention_probs_dropout_prob = 0.0
    # 0.02 is meant for 768 inputs per unit. This keeps the spread of their sum.
    config.model.initializer_range = 0.05
    config.corpus.sources = ("pydocs",)
    config.corpus.max_seq_length = 64
    config.corpus.dev_fraction = 0.02
    config.masking.max_predictions_per_seq = 10
    config.optimizer.warmup_steps = 0
    config.optimizer.warmup_fraction = 0.1
    config.train.eval_every = 0
    config.evaluate.batch_size = 64
    if recipe == "fast":
        _fast(config)
    else:
        _plain(config)
    return config


def _fast(config: ConfigDict) -> None:
    """Leaves the unigrams after some hundred steps, by Muon and sinusoids."""
    config.model.position_initializer = "sinusoidal"
    config.optimizer.name = "muon"
    config.optimizer.beta2 = 0.98
    config.optimizer.learning_rate = 6e-3
    config.tokenizer.vocab_size = 5000
    config.tokenizer.sample_bytes = 5_000_000
    config.train.num_steps = 600
    config.train.batch_size = 64
    config.train.log_every = 50
    config.checkpoint.save_every = 200


def _plain(config: ConfigDict) -> None:
    # BERT's Adam starts with steps three times as long, too long at this rate.
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 2e-3
    config.tokenizer.vocab_size = 8000
    config.train.num_steps = 9000
    config.train.batch_size = 16
    config.train.log_every = 500
    config.checkpoint.save_every = 1000
