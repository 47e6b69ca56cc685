"""Every field with its default: BERT-Base's pre-training (Devlin et al. 2019).

bert_jax/config/fields.py defines each, with its unit and the source of its value. So
does `--help --config=FILE`. The other files of this folder change only the fields that
differ.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration, fields
from bert_jax.registry import FAMILIES


def get_config() -> ConfigDict:
    return configuration.with_defaults()


def set_family(config: ConfigDict, model: str) -> None:
    """Sets the family of a model whose sizes are those of its weights.

    Args:
      model: A family's name (docs/families.md).
    """
    config.model.architecture = model
    config.model.update(fields.of_model(FAMILIES[model]))
    config.model.vocab_size = 0
    FAMILIES[model].fill_defaults(config)
