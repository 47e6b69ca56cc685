"""RoBERTa, pre-trained as in its paper (Liu et al. 2019, sections 3.1 and 5, table 9).

    python -m bert_jax.main --config=configs/roberta.py
    python -m bert_jax.main --config=configs/roberta.py:size=large

BERT's sizes and masked LM, without sentence pairs: rows of 512 tokens of whole
sentences from one or more documents, a byte-level BPE vocabulary of 50,265 tokens,
masks drawn again in each epoch, 500,000 steps of 8,192 rows. The paper's text, 160 GB
of five corpora, is not distributed as such. The default here is BERT's.

The paper's dev scores, in percent (F1 for SQuAD 2.0):

            MNLI-m  SST-2  SQuAD 2.0
    Base    87.6    94.8   83.7
    Large   90.2    96.4   89.4

`size` is one of configs/base.py, or tiny, some minutes on a CPU:

    python -m bert_jax.main --config=configs/roberta.py:size=tiny
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes


def get_config(size: str = "base") -> ConfigDict:
    """Returns the config of RoBERTa, as released or of another size.

    Args:
      size: Model size, tiny (configs/tiny.py:recipe=plain) or one of configs/base.py.
    """
    is_tiny = size == "tiny"
    config = recipes.load_pretraining(size)
    model, corpus, optimizer = config.model, config.corpus, config.optimizer
    model.architecture = "roberta"
    model.vocab_size = 0
    model.type_vocab_size = 1  # no segments
    model.layer_norm_eps = 1e-5
    config.tokenizer.lowercase = False
    config.task.nsp_loss = False
    corpus.nsp = False
    corpus.full_sentences = True
    corpus.short_seq_prob = 0.0
    config.phase2.fraction = 0.0
    optimizer.name = "adamw"
    optimizer.beta2 = 0.98
    optimizer.eps = 1e-6
    optimizer.clip_norm = 0.0  # fairseq, examples/roberta/README.pretraining.md
    if is_tiny:
        return config
    config.tokenizer.vocab_size = 50_265
    corpus.max_seq_length = 512
    config.masking.max_predictions_per_seq = 77
    is_large = size == "large"
    optimizer.learning_rate = 4e-4 if is_large else 6e-4
    optimizer.warmup_steps = 30_000 if is_large else 24_000
    optimizer.warmup_fraction = 0.0
    config.train.batch_size = 8192
    config.train.num_steps = 500_000
    return config


def finetune(config: ConfigDict, recipe: str) -> None:
    """Sets the paper's values for a task (table 10): of GLUE's grid, and those of
    SQuAD."""
    optimizer, train = config.optimizer, config.train
    optimizer.warmup_fraction = 0.06
    if recipe == "tiny":
        return
    if config.task.name == "squad":
        optimizer.learning_rate = 1.5e-5
        train.batch_size = 48
        train.num_epochs = 2.0
    else:
        optimizer.learning_rate = 2e-5  # the best of 1e-5, 2e-5 and 3e-5 on dev
        optimizer.weight_decay = 0.1
        train.num_epochs = 10.0
