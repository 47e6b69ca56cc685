"""A small English BERT from a folder of free text, on a laptop or on one GPU.

    python -m bert_jax.main --config=configs/english.py:size=mini \
        --config.corpus.sources=jsonl:english/*.jsonl.gz

`mini` is BERT-Mini (Turc et al. 2019) and meant for two cores of a CPU, `small` for
a GPU. The vocabulary, of 16,000 tokens, is trained on the text. docs/english.md shows
the results.

`--config.train.num_steps` sets the length of the run. docs/runs.md explains how to
choose it for a given time.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration

# Layers, hidden size and attention heads.
SIZES = {"mini": (4, 256, 4), "small": (8, 512, 8)}


def get_config(size: str = "mini") -> ConfigDict:
    """Returns the config of an English BERT.

    Args:
      size: Name from SIZES.
    """
    if size not in SIZES:
        raise ValueError(f"size={size}: choose one of {', '.join(SIZES)}")
    config = configuration.with_defaults()
    model, train = config.model, config.train
    layers, hidden, heads = SIZES[size]
    model.num_hidden_layers = layers
    model.hidden_size = hidden
    model.num_attention_heads = heads
    model.intermediate_size = 4 * hidden
    # 0.02 is meant for 768 inputs per unit. This keeps the spread of their sum.
    model.initializer_range = round(0.02 * (768 / hidden) ** 0.5, 3)
    model.dtype = "bfloat16"
    config.tokenizer.vocab_size = 16_000
    # Some 240,000 short articles. docs/english.md has the text of mini.
    config.corpus.sources = ("hf:wikimedia/wikipedia:20231101.simple",)
    config.corpus.dev_fraction = 0.02
    config.corpus.packing = True
    # Twice the paper's masks, and positions that begin as waves: with this little text
    # a model otherwise learns frequent words and topics for long
    # (docs/measurements.md).
    config.masking.masked_lm_prob = 0.3
    config.masking.max_predictions_per_seq = 40
    config.phase2.max_predictions_per_seq = 154
    model.position_initializer = "sinusoidal"
    # At the end of the first schedule the rate is too low for positions that are new.
    config.phase2.fraction = 0.15
    config.phase2.warmup_steps = 50
    # BERT's Adam starts with steps three times as long, too long at these rates.
    config.optimizer.name = "adamw"
    config.optimizer.warmup_steps = 0
    config.optimizer.warmup_fraction = 0.1
    train.eval_every = 0
    config.evaluate.batch_size = 64
    _set_pace(config, size)
    return config


def _set_pace(config: ConfigDict, size: str) -> None:
    """Sets batches, rate and steps, which depend on the machine that a size is meant
    for."""
    model, train = config.model, config.train
    if size == "mini":
        # It sees the text less than once, too little to memorize it.
        model.hidden_dropout_prob = 0.0
        model.attention_probs_dropout_prob = 0.0
        config.optimizer.learning_rate = 1e-3
        config.phase2.learning_rate = 7e-4
        config.optimizer.warmup_fraction = 0.02
        train.batch_size = 32
        config.phase2.batch_size = 8
        train.num_steps = 7_000
        config.checkpoint.save_every = 500
    else:
        config.optimizer.learning_rate = 5e-4
        config.phase2.learning_rate = 3.5e-4
        train.batch_size = 256
        config.phase2.batch_size = 64
        train.num_steps = 60_000
        config.checkpoint.save_every = 2000
