"""IMDb's reviews (Maas et al. 2011): positive or negative?

    ./launch.sh --config=configs/finetune/imdb.py --config.init_from=FOLDER \
        --config.task.data_dir=aclImdb

The folder is the archive's: train/pos/*.txt, train/neg/*.txt and the same under test.
Other texts and classes work in the same layout. The BERT paper has no figure for IMDb;
Sun et al. 2019 ("How to Fine-Tune BERT for Text Classification?") report test errors
of 5.63% (head), 5.44% (tail) and 5.42% (head and tail) for Base, uncased, with this
batch size, learning rate and length, and 4 epochs.

A tenth of the training reviews is held out as dev, to choose checkpoints: whole films,
found by the archive's urls_pos.txt and urls_neg.txt, because test and train have no
film in common either. test is scored too.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config(size: str = "base", model: str = "bert") -> ConfigDict:
    """Args:
    size: tiny (configs/tiny.py), or one of configs/base.py.
    model: bert, or another family (docs/families.md).
    """
    config = common.get_config(size, model)
    task = config.task
    task.name = "imdb"
    task.data_dir = ""  # the folder, hf:stanfordnlp/imdb or tfds:imdb_reviews
    # Share of each class's training reviews; whole films, except from TFDS and the Hub.
    task.dev_fraction = 0.1
    task.kind = "classification"  # what is predicted; the folders name classes
    task.labels = ()  # the classes; empty: the folders' names, neg and pos
    task.max_seq_length = 256 if size == "tiny" else 512
    # The part of a long review to keep: head, tail or head_tail (of 510 pieces the
    # first 128 and the last 382; Sun et al. 2019, section 5.3.1).
    task.truncation = "head_tail"
    # Texts that share a row in training, for speed (docs/fine_tuning.md); batch_size
    # counts texts.
    task.texts_per_row = 1
    if model != "bert":
        return common.of_model(config, size, model)
    config.train.num_epochs = 4.0
    config.train.batch_size = 24
    if size != "tiny":
        config.optimizer.learning_rate = 2e-5
    return config
