"""OpenAI's GPT, pre-trained as in its paper (Radford et al. 2018, section 4.1).

    python -m bert_jax.main --config=configs/gpt.py

12 layers of 768 that see the tokens before them, 512 tokens of running text a row, a
byte-pair vocabulary of 40,000 merges. The paper reports a token perplexity of 18.4 on
BooksCorpus, which is no longer distributed. The default here is PG-19.

`size` is one of configs/base.py, or tiny, some minutes on a CPU:

    python -m bert_jax.main --config=configs/gpt.py:size=tiny
"""

from ml_collections import ConfigDict

from bert_jax.config import fields, recipes
from bert_jax.families.gpt import fields as own


def get_config(size: str = "base") -> ConfigDict:
    """Returns the config of GPT, as released or of another size.

    Args:
      size: Model size, tiny (configs/tiny.py:recipe=plain) or one of configs/base.py.
    """
    is_tiny = size == "tiny"
    config = recipes.load_pretraining(size)
    model, optimizer = config.model, config.optimizer
    model.architecture = "gpt"
    model.causal = True
    model.vocab_size = 0
    model.type_vocab_size = 1  # not used: a GPT has no segments
    model.hidden_act = "gelu_tanh"
    model.layer_norm_eps = 1e-5
    config.task.objective = "ltr"
    config.task.nsp_loss = False
    config.corpus.nsp = False
    config.corpus.short_seq_prob = 0.0
    config.phase2.fraction = 0.0
    optimizer.name = "openai_adam"
    optimizer.schedule = "openai_cosine"
    optimizer.eps = 1e-8
    if is_tiny:
        config.train.num_steps = 4000
        return config
    # 40,000 merges, some 480 characters (in words and at their ends) and three special
    # tokens. The released vocabulary has 40,478 tokens and no special tokens.
    config.tokenizer.vocab_size = 40_481
    config.corpus.sources = ("hf:emozilla/pg19",)
    config.corpus.max_seq_length = 512
    config.corpus.max_document_bytes = 0  # books stay whole
    optimizer.learning_rate = 2.5e-4
    optimizer.warmup_steps = 2000
    config.train.batch_size = 64
    # The paper: 100 epochs of BooksCorpus, of some 0.8 G words.
    config.train.num_steps = 3_000_000
    return config


def finetune(config: ConfigDict, recipe: str) -> None:
    """Sets GPT's own fields and values for a task (openai/finetune-transformer-lm,
    train.py)."""
    task, optimizer = config.task, config.optimizer
    task.update(fields.default_config(own.FIELDS).task)
    task.both_orders = task.name in ("mrpc", "qqp", "stsb")
    config.tokenizer.lowercase = True
    optimizer.name = "openai_adam"
    optimizer.schedule = "openai_linear"
    optimizer.warmup_fraction = 0.002
    if recipe != "tiny":
        optimizer.learning_rate = 6.25e-5
