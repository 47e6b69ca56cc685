"""BERT-Large with LAMB and large batches (You et al. 2020, arXiv:1904.00962v5).

    python -m bert_jax.main --config=configs/lamb.py            # 65,536, then 32,768
    python -m bert_jax.main --config=configs/lamb.py:batch=32768

`batch=512` ... `batch=32768` (powers of two) are the paper's untuned LAMB: the rate is
proportional to the square root of the batch, the warm-up fraction to the batch, and the
decay is linear.

The default is the paper's mixed batch, which took 76 minutes on 1,024 TPU v3 chips:
65,536 at length 128, then 32,768 at length 512 with its own warm-up. The paper takes
8,599 steps and prints no rates. These are from NVIDIA/DeepLearningExamples
(PyTorch/LanguageModeling/BERT, pretrain_config.sh and schedulers.py), where the rate
decays with the square root of the fraction of steps left.

If a device's part of the batch does not fit, raise `train.micro_batches` and
`phase2.micro_batches`.
"""

from ml_collections import ConfigDict

from bert_jax.config import recipes

_SEQUENCES = 512 * 1_000_000  # in the paper's training, for every batch size


def get_config(batch: str = "mixed") -> ConfigDict:
    config = recipes.load_pretraining("large")
    config.model.dtype = "bfloat16"
    config.optimizer.name = "lamb"
    if batch == "mixed":
        first, second = 7038, 1563  # steps
        config.train.num_steps = first + second
        config.train.batch_size = 65536
        config.optimizer.learning_rate = 6e-3
        config.optimizer.warmup_steps = 2000
        config.optimizer.decay_power = 0.5
        config.phase2.fraction = second / (first + second)
        config.phase2.batch_size = 32768
        config.phase2.learning_rate = 4e-3
        config.phase2.warmup_steps = 200
    else:
        size = int(batch)
        config.train.num_steps = _SEQUENCES // size
        config.train.batch_size = size
        config.optimizer.learning_rate = 5e-3 * (size / 32768) ** 0.5
        config.optimizer.warmup_steps = 0
        config.optimizer.warmup_fraction = size / 32768 / 5
    config.evaluate.batch_size = 1024
    config.train.eval_every = 1000
    config.train.log_every = 10
    config.checkpoint.save_every = 500
    return config
