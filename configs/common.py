"""Every field with its default: BERT-Base's pre-training (Devlin et al. 2019).

bert_jax/config/fields.py defines each, with its unit and the source of its value. So
does `--help --config=FILE`. The other files of this folder change only the fields that
differ.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration


def get_config() -> ConfigDict:
    return configuration.with_defaults()
