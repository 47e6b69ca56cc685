"""BERT-Base, pre-trained as in the paper: 1 M steps, 90% at length 128, 10% at 512.

    python -m bert_jax.main --config=configs/base.py

The paper reports a masked LM perplexity of 3.99 (table 6) and 97-98% on next sentence
prediction (section 3.1, footnote 5) for this recipe on BooksCorpus and English
Wikipedia.

Other sizes by arguments. Table 6 has six, by `layers`, `hidden` and `heads`, with the
perplexities that the paper reports:

    layers=3           5.84    layers=6,heads=3   5.24    layers=6    4.68
    (none: base.py)    3.99    hidden=1024        3.54    size=large  3.23

`size` names those released: mini, small, medium (Turc et al. 2019), base and large.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.config.recipes import SIZES


def get_config(
    size: str = "base", layers: str = "", hidden: str = "", heads: str = ""
) -> ConfigDict:
    """Returns the config of BERT-Base, or another size.

    Args:
      size: One of bert_jax/config/recipes.py:SIZES.
      layers: Number of layers, instead of the size's.
      hidden: Hidden size, instead of the size's.
      heads: Number of attention heads. By default one for each 64 of `hidden`.
    """
    if size not in SIZES:
        raise ValueError(f"size={size}: choose one of {', '.join(SIZES)}")
    config = configuration.with_defaults()
    model = config.model
    model.num_hidden_layers = int(layers or SIZES[size][0])
    model.hidden_size = int(hidden or SIZES[size][1])
    model.num_attention_heads = int(heads or max(1, model.hidden_size // 64))
    model.intermediate_size = 4 * model.hidden_size
    model.vocab_size = 30522
    config.phase2.fraction = 0.1
    return config
