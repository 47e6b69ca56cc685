"""BERT-Base, pre-trained as in the paper: 1 M steps, 90% at length 128, 10% at 512.

    python -m bert_jax.main --config=configs/base.py

The paper reports a masked LM perplexity of 3.99 (table 6) and 97-98% on next sentence
prediction (appendix A.1) for this recipe on BooksCorpus and English Wikipedia.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    config = common.get_config()
    config.model.vocab_size = 30522
    config.phase2.fraction = 0.1
    return config
