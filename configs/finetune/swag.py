"""SWAG (section 4.4): choose the right one of four endings.

    ./launch.sh --config=configs/finetune/swag.py --config.init_from=FOLDER \
        --config.task.train_file=train.csv --config.task.dev_file=val.csv

The files are those of github.com/rowanz/swagaf, data/, or
hf:allenai/swag:regular:SPLIT, or JSON lines or tfds:NAME:SPLIT with `context`,
`endings` and `label`: HellaSwag is `tfds:hellaswag:train` and
`tfds:hellaswag:validation`. Dev accuracy in the paper: Base 81.6, Large 86.6 (3 epochs,
2e-5, batch 16).

With model=gpt the weights are a GPT's.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(recipe: str = "base", model: str = "bert") -> ConfigDict:
    """Returns the config of SWAG.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      model: Model family, bert or another one (docs/families.md).
    """
    config = recipes.start_finetuning("swag", recipe, model)
    if recipe == "tiny":
        config.task.max_seq_length = 64
    config.train.num_epochs = 3.0
    if model != "bert":
        return recipes.finish_finetuning(config, recipe, model)
    config.train.batch_size = 16
    if recipe != "tiny":
        config.optimizer.learning_rate = 2e-5
    return config
