"""One's own texts or pairs of texts: a class, several labels at once, or a number.

    ./launch.sh --config=configs/finetune/text.py --config.init_from=FOLDER \
        --config.task.train_file=train.csv --config.task.dev_file=dev.csv \
        --config.task.text=review --config.task.label=stars

There is no figure of the paper for it; the values are in the middle of its grid
(appendix A.3: batch 16 or 32; 5e-5, 3e-5 or 2e-5; 2 to 4 epochs), chosen on dev.
"""

from ml_collections import ConfigDict

from configs.finetune import common


def get_config(size: str = "base") -> ConfigDict:
    """Args:
    size: tiny, base or large.
    """
    config = common.get_config(size)
    task = config.task
    task.name = "text"
    # NAME.csv (quoted), NAME.tsv (not quoted), NAME.jsonl, each with .gz too; or
    # tfds:NAME:SPLIT. Empty: none. CSV and TSV have a header.
    task.train_file = ""
    task.dev_file = ""
    task.test_file = ""  # may be unlabelled
    task.text = "text"  # the columns' names
    task.text_b = ""  # empty: single texts
    task.label = "label"
    task.kind = "classification"  # classification, multilabel or regression
    task.label_separator = ","  # between the labels of a field; in JSON it is a list
    task.labels = ()  # empty: those of the training data
    task.truncation = "head"  # which end of a long text stays: head, tail, head_tail
    return config
