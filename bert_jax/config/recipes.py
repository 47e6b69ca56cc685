"""Values that several files of configs/ share."""

from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import configuration, fields, files
from bert_jax.registry import FAMILIES

# Layers and hidden size of the released models (Devlin et al. 2019, Turc et al. 2019).
SIZES = {
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
RECIPES = ("tiny", *SIZES)


def load_pretraining(size: str) -> ConfigDict:
    """Returns the pre-training of a BERT of this size.

    Args:
      size: tiny (configs/tiny.py:recipe=plain), or a name from SIZES (configs/base.py).
    """
    return files.load_file(
        "tiny:recipe=plain" if size == "tiny" else f"base:size={size}"
    )


def set_family(config: ConfigDict, model: str) -> None:
    """Sets the family of a model whose sizes are those of its weights.

    Args:
      model: A family's name (docs/families.md).
    """
    config.model.architecture = model
    config.model.update(fields.family_model_fields(FAMILIES[model]))
    config.model.vocab_size = 0
    FAMILIES[model].fill_defaults(config)


def set_replaced_tokens(config: ConfigDict) -> None:
    """Sets the values of replaced-token detection, in one phase."""
    config.task.objective = "replaced_tokens"
    config.task.nsp_loss = False
    config.masking.mask_fraction = 0.85
    config.masking.random_fraction = 0.0
    config.phase2.fraction = 0.0


def start_finetuning(task: str, recipe: str, model: str) -> ConfigDict:
    """Returns the config of every fine-tuning run (section 4 and appendix A.3), before
    the changes of a task or another model than BERT.

    Weights and vocabulary come from `--config.init_from=PATH`. Without it a run starts
    from random values and needs `--config.tokenizer.vocab_file`.

    Another model may have a file in configs/, such as gpt.py. There
    `get_config(recipe)` returns the config to start from. RECIPES names the recipes, if
    they are not BERT's. A model without such a file has BERT's values, and the sizes of
    the weights.

    Args:
      task: Name of the task.
      recipe: Recipe of a model size, a name from RECIPES. Without init_from it sets the
        model's size too.
      model: A family's name.
    """
    if model not in FAMILIES:
        raise ValueError(f"model={model}: choose one of {', '.join(FAMILIES)}")
    model_file = _file_of_model(model)
    recipes = model_file.get("RECIPES", RECIPES)
    if recipe not in recipes:
        raise ValueError(f"recipe={recipe}: choose one of {', '.join(recipes)}")
    if model_file:
        config: ConfigDict = model_file["get_config"](recipe)
    else:
        config = load_pretraining(recipe)
        if model != "bert":
            set_family(config, model)
    config.phase2.fraction = 0.0
    config.task = configuration.with_defaults(task).task
    optimizer, train = config.optimizer, config.train
    optimizer.warmup_steps = 0
    optimizer.warmup_fraction = 0.1
    optimizer.learning_rate = 3e-5
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


def finish_finetuning(config: ConfigDict, recipe: str, model: str) -> ConfigDict:
    """Returns the config with the changes of a model other than BERT, which
    `finetune(config, recipe)` of its file in configs/ makes.

    Args:
      config: Config with all fields of the task, with BERT's values where it has
        others.
    """
    model_file = _file_of_model(model)
    if model_file:
        model_file["finetune"](config, recipe)
    return config


def _file_of_model(model: str) -> dict[str, Any]:
    """Returns what the file of a model in configs/ defines, empty without a file."""
    path = files.CONFIGS / f"{model}.py"
    return files.run_file(path) if path.is_file() else {}
