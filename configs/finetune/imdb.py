"""IMDb's reviews (Maas et al. 2011): positive or negative?

    ./launch.sh --config=configs/finetune/imdb.py --config.init_from=FOLDER \
        --config.task.data_dir=aclImdb

The folder is the archive's: train/pos/*.txt, train/neg/*.txt and the same under test.
Other texts and classes work in the same layout. hf:stanfordnlp/imdb and
tfds:imdb_reviews have IMDb's. The BERT paper has no figure for IMDb.
Sun et al. 2019 ("How to Fine-Tune BERT for Text Classification?") report test errors
of 5.63% (head), 5.44% (tail) and 5.42% (head and tail) for Base, uncased, with this
batch size, learning rate and length, and 4 epochs.

A tenth of the training reviews is held out as dev, to choose checkpoints: whole films,
found by the archive's urls_pos.txt and urls_neg.txt, because test and train have no
film in common either. test is scored too.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(recipe: str = "base", model: str = "bert") -> ConfigDict:
    """Returns the config of IMDb's classification.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      model: Model family, bert or another one (docs/families.md).
    """
    config = recipes.start_finetuning("imdb", recipe, model)
    config.task.dev_fraction = 0.1
    config.task.max_seq_length = 256 if recipe == "tiny" else 512
    config.task.truncation = "head_tail"
    if model != "bert":
        return recipes.finish_finetuning(config, recipe, model)
    config.train.num_epochs = 4.0
    config.train.batch_size = 24
    if recipe != "tiny":
        config.optimizer.learning_rate = 2e-5
    return config
