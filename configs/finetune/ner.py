"""Named entities, or other tags of words, in column files (section 5.3).

    ./launch.sh --config=configs/finetune/ner.py --config.init_from=CASED_FOLDER \
        --config.task.train_file=eng.train --config.task.dev_file=eng.testa \
        --config.task.test_file=eng.testb --config.task.document_context=True \
        --config.task.max_seq_length=512

One word per line, in columns, an empty line between sentences, and -DOCSTART- lines
between documents. Comments (# sent_id = 7) are skipped. Or rows of tokens and ner_tags:
JSON lines, parquet, hf:eriktks/conll2003:train, tfds:conll2003:train.

On CoNLL-2003 the paper reports F1 of 96.4 on dev and 92.4 on test for Base, 96.6 and
92.8 for Large (table 7), with cased models and the maximal document context. It gives
no rate, batch or epochs. These are from appendix A.3.

recipe=tiny learns from random values in a few minutes on a CPU. It needs
--config.tokenizer.vocab_file. With model=gpt the weights are a GPT's.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(recipe: str = "base", model: str = "bert") -> ConfigDict:
    """Returns the config of token tagging.

    Args:
      recipe: Recipe of a model size: tiny (configs/tiny.py) or one of configs/base.py.
        Without init_from it sets the model's size too.
      model: Model family, bert or another one (docs/families.md).
    """
    config = recipes.start_finetuning("ner", recipe, model)
    config.tokenizer.lowercase = False
    if model != "bert":
        return recipes.finish_finetuning(config, recipe, model)
    config.optimizer.learning_rate = 5e-5
    if recipe == "tiny":
        config.optimizer.learning_rate = 1e-3
        config.train.num_epochs = 6.0
    return config
