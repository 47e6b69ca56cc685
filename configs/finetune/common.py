"""The defaults of every fine-tuning run (section 4 and appendix A.3).

The other files in this folder take `recipe` and name the task. Weights and vocabulary
come from `--config.init_from=PATH`. Without it a run starts from random values and
needs `--config.tokenizer.vocab_file`.
Another model may have a separate file in configs/, such as gpt.py. There
`get_config(recipe)`, or `for_finetuning(recipe)` if there is one, returns the config to
start from, and `finetune(config, recipe)` sets the fields that the model changes in a
task. RECIPES names the recipes, if they are not BERT's. A model without such a file has
BERT's values, and the sizes of the weights.
"""

import importlib
from pathlib import Path
from types import ModuleType

from ml_collections import ConfigDict

from bert_jax.config import configuration
from bert_jax.registry import FAMILIES
from configs import base, common, tiny

_FOLDER = Path(base.__file__).parent
MODELS = [*FAMILIES]
RECIPES = ("tiny", *base.SIZES)


def get_config(task: str, recipe: str = "base", model: str = "bert") -> ConfigDict:
    """Returns the config of a task, before the changes of the task or another model.

    Args:
      task: Name of the task.
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      model: Name from MODELS.
    """
    if model not in MODELS:
        raise ValueError(f"model={model}: choose one of {', '.join(MODELS)}")
    module = _module(model) if _has_file(model) else None
    recipes = getattr(module, "RECIPES", RECIPES)
    if recipe not in recipes:
        raise ValueError(f"recipe={recipe}: choose one of {', '.join(recipes)}")
    if module:
        config = getattr(module, "for_finetuning", module.get_config)(recipe)
    else:
        is_tiny = recipe == "tiny"
        config = tiny.get_config("plain") if is_tiny else base.get_config(size=recipe)
    if model != "bert" and not module:
        common.set_family(config, model)
    config.phase2.fraction = 0.0
    config.task = configuration.with_defaults(task).task
    optimizer = config.optimizer
    optimizer.warmup_steps = 0
    optimizer.warmup_fraction = 0.1
    optimizer.learning_rate = 3e-5
    train = config.train
    train.num_steps = 0  # num_epochs decides
    train.num_epochs = 3.0
    train.batch_size = 32
    train.micro_batches = 1
    train.log_every = 50
    train.eval_every = 0
    train.eval_every_epoch = True
    config.evaluate.batch_size = 64
    config.evaluate.splits = ("dev", "test")
    config.checkpoint.save_every = 500
    config.checkpoint.keep = 1
    if recipe == "tiny":
        # So small a model still has nearly everything to learn.
        optimizer.name = "adamw"
        optimizer.learning_rate = 5e-4
        config.model.hidden_dropout_prob = 0.1
        config.model.attention_probs_dropout_prob = 0.1
    return config


def of_model(config: ConfigDict, recipe: str, model: str) -> ConfigDict:
    """Returns the config of a task, with the changes of a model other than BERT.

    Args:
      config: Config with all fields of the task, with BERT's values where it has
        others.
    """
    if _has_file(model):
        _module(model).finetune(config, recipe)
    return config


def _has_file(model: str) -> bool:
    return model != "bert" and (_FOLDER / f"{model}.py").exists()


def _module(model: str) -> ModuleType:
    return importlib.import_module(f"configs.{model}")
