"""GLUE: cola sst2 mrpc stsb qqp mnli qnli rte wnli ax (section 4.1, table 1).

    python -m bert_jax.main --config=configs/finetune/glue.py:recipe=base,task=mrpc \
        --config.task.data_dir=glue_data/MRPC --config.init_from=WEIGHTS

The data: the folder of the task's files, hf:nyu-mll/glue or tfds:glue/NAME.

The paper: batch 32, 3 epochs, the best of 5e-5, 4e-5, 3e-5 and 2e-5 on dev. For Large
it takes several random restarts, because it is unstable on small sets.
python -m bert_jax sweep runs such a grid. The paper's test scores, in percent (F1 for
QQP and MRPC, Spearman for STS-B, Matthews for CoLA):

            MNLI-m/mm  QQP   QNLI  SST-2  CoLA  STS-B  MRPC  RTE   average
    Base    84.6/83.4  71.2  90.5  93.5   52.1  85.8   88.9  66.4  79.6
    Large   86.7/85.9  72.1  92.7  94.9   60.5  86.5   89.3  70.1  82.1

The paper leaves out WNLI. AX has no training set: an mnli run answers it if
diagnostic.tsv is next to its files (or in ../diagnostic). Or run --mode=evaluate later
with `task=ax`, --config.init_from=RUN and --workdir=FOLDER, a folder for AX.tsv.

From random values recipe=tiny reaches 80.6 accuracy on SST-2's dev set in its one
epoch, minutes on a CPU. The majority class reaches 50.9:

    python -m bert_jax.main --config=configs/finetune/glue.py:recipe=tiny,task=sst2 \
        --config.task.data_dir=glue_data/SST-2 --config.tokenizer.vocab_file=VOCAB

With model=gpt the weights are a GPT's, fine-tuned as its paper does.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes
from bert_jax.config.task_fields import GLUE


def get_config(
    recipe: str = "base", task: str = "mnli", model: str = "bert"
) -> ConfigDict:
    """Returns the config of a task of GLUE.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      task: Name of one of the ten tasks.
      model: Model family, bert or another one (docs/families.md).
    """
    if task not in GLUE:
        raise ValueError(f"task={task}: choose one of {', '.join(GLUE)}")
    config = recipes.start_finetuning(task, recipe, model)
    recipes.finish_finetuning(config, recipe, model)
    if recipe == "tiny" and task in ("mnli", "qqp", "qnli", "sst2"):
        config.train.num_epochs = 1.0  # the set has some hundred thousand records
    if task == "mnli":
        mismatched = ("dev_mismatched", "test_mismatched")
        config.evaluate.splits = (*config.evaluate.splits, *mismatched, "ax")
    if task == "ax":
        config.evaluate.splits = ("test",)
        config.train.num_steps = 1  # no training data, so no epochs to count
    return config
