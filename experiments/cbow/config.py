"""CBoW, a classifier on the mean of word vectors (experiments/cbow/task.py).

    python -m experiments.cbow.vectors --corpus=SOURCES --output=VECTORS
    ./launch.sh --config=experiments/cbow/config.py:of=glue.py,task=sst2 \
        --config.task.data_dir=SST-2 \
        --config.tokenizer.vocab_file=VECTORS/vocab.txt \
        --config.task.vectors=VECTORS/vectors.npy

`of` is glue.py, text.py or imdb.py of configs/finetune/; `task` is one of GLUE's.
Without `task.vectors` the vectors are random. They learn, unless
`optimizer.frozen=('embeddings',)` keeps them as they start.
"""

import importlib

from ml_collections import ConfigDict

from bert_jax.family import FAMILIES
from experiments.cbow import task as cbow

FAMILIES[cbow.CBOW.name] = cbow.CBOW


def get_config(of: str = "text.py", task: str = "", size: str = "base") -> ConfigDict:
    """Args:
    of: the task's file in configs/finetune/.
    task: of glue.py.
    size: rows and batches are those of that config at this size.
    """
    given = {"task": task} if task else {}
    module = importlib.import_module(f"configs.finetune.{of.removesuffix('.py')}")
    config = module.get_config(size=size, **given)
    config.model.architecture = cbow.CBOW.name
    fields, optimizer = config.task, config.optimizer
    # A file of experiments.cbow.vectors; empty: normal values of the same variance.
    fields.vectors = ""
    fields.vector_size = 100  # numbers of a word's vector
    fields.classifier_size = 512  # of the hidden layer
    fields.dropout = 0.2  # of the hidden layer's output
    # As ELMo's classifiers here: Adam.
    optimizer.name = "adamw"
    optimizer.learning_rate = 1e-3
    optimizer.weight_decay = 0.0
    return config
