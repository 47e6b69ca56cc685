"""BERT-Large, pre-trained as in the paper (section 3): L=24, H=1024, A=16.

    python -m bert_jax.main --config=configs/large.py

The paper reports a masked LM perplexity of 3.23 (table 6) for this recipe.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config() -> ConfigDict:
    return recipes.load_pretraining("large")
