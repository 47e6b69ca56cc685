"""ELECTRA, pre-trained as in its paper (Clark et al. 2020, table 6, and
google-research/electra, configure_pretraining.py).

    python -m bert_jax.main --config=configs/electra.py:size=small

A generator fills 15% of the tokens, of which 85% are masked, and the model finds out
which tokens are not those of the text. There are no sentence pairs. The default text is
that of configs/base.py.

`size` is small, base, large, or tiny, some minutes on a CPU:

    python -m bert_jax.main --config=configs/electra.py:size=tiny
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes

# Layers, hidden size, heads, width of the embeddings, the generator's fraction of the
# width, tokens of a row, fraction of masked tokens, rows of a batch, steps, peak of
# the rate.
SIZES = {
    "small": (12, 256, 4, 128, 0.25, 128, 0.15, 128, 1_000_000, 5e-4),
    "base": (12, 768, 12, 768, 1 / 3, 512, 0.15, 256, 766_000, 2e-4),
    "large": (24, 1024, 16, 1024, 0.25, 512, 0.25, 2048, 400_000, 2e-4),
}


def get_config(size: str = "base") -> ConfigDict:
    """Returns the config of ELECTRA, as released or tiny.

    Args:
      size: Name from SIZES, or tiny (configs/tiny.py:recipe=plain).
    """
    if size not in ("tiny", *SIZES):
        raise ValueError(f"size={size}: choose one of tiny, {', '.join(SIZES)}")
    config = recipes.load_pretraining("tiny" if size == "tiny" else "base")
    recipes.set_family(config, "electra")
    recipes.set_replaced_tokens(config)
    model, optimizer, corpus = config.model, config.optimizer, config.corpus
    if size == "tiny":
        model.embedding_size = 64
        return config
    layers, hidden, heads, embedding, fraction, length, share, *rest = SIZES[size]
    model.num_hidden_layers, model.hidden_size = layers, hidden
    model.num_attention_heads, model.intermediate_size = heads, 4 * hidden
    model.embedding_size, model.generator_hidden_size = embedding, fraction
    corpus.max_seq_length, config.masking.masked_lm_prob = length, share
    config.masking.max_predictions_per_seq = round(share * length) + 1
    config.train.batch_size, config.train.num_steps, optimizer.learning_rate = rest
    return config


def finetune(config: ConfigDict, recipe: str) -> None:
    """Keeps BERT's values: the paper's rates (table 7) are for layers whose rates fall
    with their depth (examples/layerwise.py)."""
