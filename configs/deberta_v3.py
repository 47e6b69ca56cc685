"""DeBERTa-v3, pre-trained as in its paper (He et al. 2021): ELECTRA's replaced tokens,
with disentangled attention and embeddings whose gradients do not meet.

    python -m bert_jax.main --config=configs/deberta_v3.py \
        --config.tokenizer.vocab_file=tokenizer.json

A vocabulary of SentencePiece's Unigram is not trained here, so it has to be named. The
default text is that of configs/base.py.

`size` is xsmall, small, base, large, or tiny, some minutes on a CPU.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes

# Layers, hidden size and heads of the released models, and the peak of the rate.
SIZES = {
    "xsmall": (12, 384, 6, 6e-4),
    "small": (6, 768, 12, 6e-4),
    "base": (12, 768, 12, 6e-4),
    "large": (24, 1024, 16, 3e-4),
}


def get_config(size: str = "base") -> ConfigDict:
    """Returns the config of DeBERTa-v3, as released or tiny.

    Args:
      size: Name from SIZES, or tiny (configs/tiny.py:recipe=plain).
    """
    if size not in ("tiny", *SIZES):
        raise ValueError(f"size={size}: choose one of tiny, {', '.join(SIZES)}")
    config = recipes.load_pretraining("tiny" if size == "tiny" else "base")
    recipes.set_family(config, "deberta_v3")
    recipes.set_replaced_tokens(config)
    model, optimizer = config.model, config.optimizer
    model.layer_norm_eps = 1e-7
    config.tokenizer.lowercase = False
    if size == "tiny":
        model.position_buckets = 32
        return config
    layers, hidden, heads, optimizer.learning_rate = SIZES[size]
    model.num_hidden_layers, model.hidden_size = layers, hidden
    model.num_attention_heads, model.intermediate_size = heads, 4 * hidden
    config.corpus.max_seq_length = 512
    config.masking.max_predictions_per_seq = 77
    optimizer.name = "adamw"
    optimizer.beta2 = 0.98
    optimizer.warmup_steps = 10_000
    config.train.batch_size = 8192
    config.train.num_steps = 500_000
    return config


def finetune(config: ConfigDict, recipe: str) -> None:
    """Takes back the second moment of pre-training. The paper's grid of rates has
    BERT's value for a task."""
    config.optimizer.beta2 = 0.999
