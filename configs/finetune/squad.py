"""SQuAD 1.1 and 2.0 (sections 4.2 and 4.3).

    ./launch.sh --config=configs/finetune/squad.py:version=1.1,recipe=large \
        --config.task.train_file=train-v1.1.json \
        --config.task.dev_file=dev-v1.1.json \
        --config.init_from=MODEL --workdir=runs/squad1

The files are the official ones, `.gz` or not, or those of a set in their form, rows
(JSON lines, "data" or a list, or .parquet), hf:rajpurkar/squad:train,
tfds:squad/v1.1:train. The paper's exact match and F1 on dev, in percent, are for 1.1
Base 80.8/88.5, Large 84.1/90.9 and Large after TriviaQA 84.2/91.1, and for 2.0
(version=2.0) Large 78.7/81.9.

TriviaQA first: its files in SQuAD's form (docs/fine_tuning.md), one epoch over them,
then this task from that run's weights:

    ./launch.sh --config=configs/finetune/squad.py:recipe=large \
        --config.task.train_file=triviaqa-train.json --config.train.num_epochs=1 \
        --config.init_from=MODEL --workdir=runs/triviaqa
    ./launch.sh --config=configs/finetune/squad.py:recipe=large \
        --config.task.train_file=train-v1.1.json \
        --config.task.dev_file=dev-v1.1.json \
        --config.init_from=runs/triviaqa --workdir=runs/squad1

With model=gpt the weights are a GPT's.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(
    recipe: str = "base", version: str = "1.1", model: str = "bert"
) -> ConfigDict:
    """Returns the paper's values.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      version: 1.1, or 2.0, where a question may have no answer.
      model: Model family, bert or another one (docs/families.md).
    """
    if version not in ("1.1", "2.0"):
        raise ValueError(f"version={version}: choose one of 1.1, 2.0")
    config = recipes.start_finetuning("squad", recipe, model)
    task = config.task
    task.null_answers = version == "2.0"
    task.max_seq_length = 384  # run_squad.py's default
    config.evaluate.splits = ("dev",)
    if recipe == "tiny":
        task.max_seq_length = 192  # most paragraphs fit in one or two windows
        task.doc_stride = 64
    if recipe == "tiny" or model != "bert":
        return recipes.finish_finetuning(config, recipe, model)
    config.optimizer.learning_rate = 5e-5
    if task.null_answers:
        config.train.num_epochs = 2.0
        config.train.batch_size = 48
    return config
