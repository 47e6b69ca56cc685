"""A share of masked tokens that `max_predictions_per_seq` cuts is noticed."""

import pytest

from bert_jax.config import configuration
from bert_jax.tasks import pretraining


@pytest.mark.parametrize("fields", [[], ["--config.masking.masked_lm_prob=0.3"]])
def test_warning_names_both_phases_of_a_larger_share(fields, caplog):
    config = configuration.load_config("base", fields)
    pretraining._warn_of_few_predictions(config)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 * len(fields)
    for line, length, most in zip(lines, (128, 512), (20, 77), strict=False):
        assert f"=0.3 of {length} tokens is {0.3 * length:.0f}, but" in line
        assert f"max_predictions_per_seq={most}: no more are predicted" in line
