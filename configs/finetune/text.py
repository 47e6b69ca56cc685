"""Your own texts or text pairs: predict a class, several labels, or a number.

    ./launch.sh --config=configs/finetune/text.py --config.init_from=FOLDER \
        --config.task.train_file=train.csv --config.task.dev_file=dev.csv \
        --config.task.text=review --config.task.label=stars

The files: NAME.csv (quoted, with commas, semicolons or tabs), NAME.tsv (not quoted)
or NAME.jsonl, perhaps compressed (.gz, .bz2, .xz, .zst), NAME.parquet,
hf:OWNER/NAME:SPLIT or tfds:NAME:SPLIT.
In a .csv or .tsv without a header, columns are numbers: --config.task.text=1
--config.task.label=0 for lines of a label, a tab and a text.

The paper has no figure for it. The values are in the middle of its grid (appendix A.3):
batch 16 or 32, rate 5e-5, 3e-5 or 2e-5, 2 to 4 epochs, chosen on dev.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(recipe: str = "base", model: str = "bert") -> ConfigDict:
    """Returns the config of a task on your own texts.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      model: Model family, bert or another one (docs/families.md).
    """
    config = recipes.start_finetuning("text", recipe, model)
    return recipes.finish_finetuning(config, recipe, model)
