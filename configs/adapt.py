"""Continues pre-training existing weights on the texts of a task or of a field.

    python -m bert_jax.main --config=configs/adapt.py --workdir=runs/adapted \
        --config.init_from=WEIGHTS --config.corpus.sources=lines:texts.txt

Texts without labels that are like those of the task help before fine-tuning, which then
starts with `--config.init_from=runs/adapted` (Gururangan et al. 2020, arXiv:2004.10964,
whose learning rate and warm-up these are). A line of a file is a text here, and a row
holds several. docs/english.md shows the results.
"""

from ml_collections import ConfigDict

from bert_jax.config import configuration, recipes


def get_config(model: str = "bert") -> ConfigDict:
    """Returns the config of continued pre-training.

    Args:
      model: The family of the weights, bert or another one (docs/families.md).
    """
    config = configuration.with_defaults()
    if model != "bert":
        recipes.set_family(config, model)
    # Single texts have no second sentence.
    config.corpus.nsp = False
    config.corpus.packing = True
    config.corpus.packed_pairs = 16  # SST-2's sentences fill rows of 64 to 99%
    config.corpus.sources = ("lines:texts.txt",)
    config.corpus.dev_fraction = 0.02
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 1e-4
    config.optimizer.warmup_steps = 0
    config.optimizer.warmup_fraction = 0.06
    config.train.num_steps = 2000
    config.train.batch_size = 32
    config.train.eval_every = 0
    config.evaluate.batch_size = 64
    config.checkpoint.save_every = 500
    return config
