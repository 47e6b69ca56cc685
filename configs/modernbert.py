"""ModernBERT, pre-trained as in its paper (Warner et al. 2024, section 2.2, and
AnswerDotAI/ModernBERT, yamls/modernbert).

    python -m bert_jax.main --config=configs/modernbert.py

22 layers of 768, rows of 1,024 tokens that hold several texts, 30% of them masked, no
next sentences. The paper's text, 2 T tokens, is not public. The default here is that of
configs/base.py. The paper then continues at 8,192 tokens, with a wider theta:

    python -m bert_jax.main --config=configs/modernbert.py --config.init_from=RUN \
        --config.corpus.max_seq_length=8192 --config.model.global_rope_theta=160000.0 \
        --config.model.max_position_embeddings=8192 \
        --config.optimizer.learning_rate=3e-4

`size` is base, large, or tiny, some minutes on a CPU:

    python -m bert_jax.main --config=configs/modernbert.py:size=tiny
"""

from ml_collections import ConfigDict

from bert_jax.config import fields, recipes
from bert_jax.registry import FAMILIES

# Layers, hidden size, heads, and numbers inside a GeGLU, then the peak of the rate.
SIZES = {
    "tiny": (4, 128, 4, 192, 2e-3),
    "base": (22, 768, 12, 1152, 8e-4),
    "large": (28, 1024, 16, 2624, 5e-4),
}
RECIPES = tuple(SIZES)  # of fine-tuning


def get_config(size: str = "base") -> ConfigDict:
    """Returns the config of ModernBERT, as released or tiny.

    Args:
      size: Name from SIZES.
    """
    if size not in SIZES:
        raise ValueError(f"size={size}: choose one of {', '.join(SIZES)}")
    config = recipes.load_pretraining("tiny" if size == "tiny" else "base")
    model, optimizer = config.model, config.optimizer
    layers, hidden, heads, inner, rate = SIZES[size]
    model.architecture = model.layer = model.positions = "modernbert"
    model.num_hidden_layers, model.hidden_size = layers, hidden
    model.num_attention_heads, model.intermediate_size = heads, inner
    model.vocab_size = 0
    model.type_vocab_size = 1  # no segments
    model.layer_norm_eps = 1e-5
    # On the attention's output. Embeddings and GeGLU drop nothing.
    model.hidden_dropout_prob = 0.1
    model.attention_probs_dropout_prob = 0.0
    model.update(fields.family_model_fields(FAMILIES["modernbert"]))
    model.global_rope_theta = 10_000.0
    config.task.nsp_loss = False
    config.corpus.nsp = False
    config.corpus.packing = True
    config.corpus.packed_pairs = 8
    config.masking.masked_lm_prob = 0.3
    config.phase2.fraction = 0.0
    optimizer.name = "stable_adamw"
    optimizer.schedule = "warmup_stable_decay"
    optimizer.learning_rate = rate
    optimizer.beta2 = 0.98
    # The fraction of all steps in which the rate falls: 50 of 2,000 G tokens.
    optimizer.decay_fraction = 0.025
    config.tokenizer.lowercase = False
    if size == "tiny":
        _tiny(config)
        return config
    config.tokenizer.vocab_size = 50_368
    model.max_position_embeddings = 1024
    config.corpus.max_seq_length = 1024
    config.corpus.short_seq_prob = 0.0
    config.masking.max_predictions_per_seq = 307
    # 1e-5 of each weight at the peak, regardless of the rate.
    optimizer.weight_decay = 1e-5 / rate
    optimizer.warmup_steps = 636  # 3 G tokens
    # The paper's batches grow from 768 to 4,608 in the first 50 G tokens.
    config.train.batch_size = 4608
    config.train.num_steps = 364_000  # 1.72 T tokens
    return config


def _tiny(config: ConfigDict) -> None:
    config.model.hidden_dropout_prob = 0.0
    config.model.local_attention = 16  # rows have 64 tokens
    config.masking.max_predictions_per_seq = 19
    config.optimizer.decay_fraction = 0.3
    config.train.num_steps = 4000


def finetune(config: ConfigDict, recipe: str) -> None:
    """Sets ModernBERT's own values for a task."""
    config.corpus.packing = False
    optimizer = config.optimizer
    optimizer.name = "adamw"
    optimizer.schedule = "polynomial"
    optimizer.warmup_fraction = 0.06
    if recipe != "tiny":
        optimizer.learning_rate = 5e-5
        optimizer.weight_decay = 5e-6 / optimizer.learning_rate
