"""Vectors of texts: alike texts have a cosine near 1 (Reimers & Gurevych 2019).

    ./launch.sh --config=configs/finetune/embeddings.py --config.init_from=FOLDER \
        --config.task.train_file=pairs.csv --config.task.dev_file=dev.csv

The files have a header, as those of text.py. Rows are pairs (`text`, `text_b`),
triplets (`text`, `positive`, `negative`), pairs with a `score`, or texts alone.
`--mode=export` writes a folder of sentence-transformers, and
`bert_jax.load(RUN).sentences(texts)` gives the same vectors.

BERT's paper has no figure for it. The values are those of the SBERT and SimCSE papers
for Base: batch 64, 2e-5 to 5e-5, one epoch, temperature 0.05.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(recipe: str = "base", model: str = "bert") -> ConfigDict:
    """Returns the config of vectors of texts.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      model: Model family, bert or another one that reads both sides (docs/families.md).
    """
    config = recipes.start_finetuning("embeddings", recipe, model)
    config.task.text_b = "text_b"  # or a column `positive`
    if recipe == "tiny":
        config.task.max_seq_length = 64
    else:
        config.optimizer.learning_rate = 2e-5
    config.evaluate.splits = ("dev", "test", "retrieval")
    config.train.batch_size = 64
    config.train.num_epochs = 1.0
    return recipes.finish_finetuning(config, recipe, model)
