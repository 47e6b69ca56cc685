"""SWAG (section 4.4): choose the right one of four endings.

    ./launch.sh --config=configs/finetune/swag.py --config.init_from=FOLDER \
        --config.task.train_file=train.csv --config.task.dev_file=val.csv

The files are those of github.com/rowanz/swagaf, data/. HellaSwag is read from TFDS:
`tfds:hellaswag:train` and `tfds:hellaswag:validation`. Dev accuracy in the paper: Base
81.6, Large 86.6 (3 epochs, 2e-5, batch 16).

With model=gpt the weights are a GPT's; with model=elmo an ELMo's, below
ESIM (docs/families.md).
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
    task.name = "swag"
    # SWAG's official CSV or hf:allenai/swag:regular:SPLIT; or JSON lines or
    # tfds:NAME:SPLIT with `context`, `endings` and `label`. Empty: no file.
    task.train_file = ""
    task.dev_file = ""  # the same, to score
    task.test_file = ""  # the same; may be unlabelled
    task.max_seq_length = 128 if size != "tiny" else 64
    config.train.num_epochs = 3.0
    if model != "bert":
        return common.of_model(config, size, model)
    config.train.batch_size = 16
    if size != "tiny":
        config.optimizer.learning_rate = 2e-5
    return config
