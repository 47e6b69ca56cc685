"""Models small enough for a test."""

from bert_jax.models.config import BertConfig
from configs import common


def bert_config(**fields) -> BertConfig:
    """BERT-Base's, but for these fields."""
    return BertConfig.create({**common.get_config().model, **fields}, vocab_size=0)
