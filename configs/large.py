"""BERT-Large, pre-trained as in the paper (section 3): L=24, H=1024, A=16.

    python -m bert_jax.main --config=configs/large.py

The paper reports a masked LM perplexity of 3.23 (table 6) for this recipe.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.model.hidden_size = 1024
    config.model.num_hidden_layers = 24
    config.model.num_attention_heads = 16
    config.model.intermediate_size = 4096
    return config
