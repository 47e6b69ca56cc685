"""Your own texts or text pairs: predict a class, several labels, or a number.

    ./launch.sh --config=configs/finetune/text.py --config.init_from=FOLDER \
        --config.task.train_file=train.csv --config.task.dev_file=dev.csv \
        --config.task.text=review --config.task.label=stars

In a .csv or .tsv without a header, columns are numbers: --config.task.text=1
--config.task.label=0 for lines of a label, a tab and a text.

The paper has no figure for it. The values are in the middle of its grid (appendix A.3:
batch 16 or 32; 5e-5, 3e-5 or 2e-5; 2 to 4 epochs; choose on dev).
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
    task.name = "text"
    # NAME.csv (quoted; between commas, semicolons or tabs), NAME.tsv (not quoted) or
    # NAME.jsonl, perhaps compressed (.gz, .bz2, .xz, .zst), NAME.parquet,
    # hf:OWNER/NAME:SPLIT or tfds:NAME:SPLIT. Empty: no file.
    task.train_file = ""
    task.dev_file = ""  # the same, to score
    # Without a dev_file: share of each class (kind=classification; else of all texts)
    # to hold out of the training data as dev. Drawn by the texts themselves, so that
    # equal texts stay together.
    task.dev_fraction = 0.0
    task.test_file = ""  # the same; may be unlabelled
    # csv, tsv or jsonl, whatever the files' names end in; empty: by the ending.
    task.format = ""
    # The texts' column: its name in the header; or, in CSV and TSV without a header,
    # the numbers of all columns, from 0 as in pandas (cut and awk count from 1).
    task.text = "text"
    task.text_b = ""  # the second text's; empty: single texts
    task.label = "label"  # the column of the classes, labels or numbers
    # classification (one class), multilabel (any number of labels) or regression (a
    # number).
    task.kind = "classification"
    # Of the losses: none, or balanced (a class counts by the inverse of its frequency).
    task.class_weights = "none"
    # multilabel: between the labels in a CSV or TSV field; JSON has lists.
    task.label_separator = ","
    task.labels = ()  # the classes; empty: those of the training data
    # Names of numbered classes, in their order: ("ham", "spam") for 0 and 1; or
    # ("1=World", "2=Sports"). Empty: as in the data.
    task.label_names = ()
    # The part of a long text to keep: head, tail, or head_tail (a quarter from its
    # beginning, the rest from its end).
    task.truncation = "head"
    # Texts that share a row in training, for speed (docs/fine_tuning.md); batch_size
    # counts texts.
    task.texts_per_row = 1
    return common.of_model(config, size, model)
