"""Student's t interval, against SciPy."""

import numpy as np
import pytest
from scipy import stats

from bert_jax.commands import intervals


@pytest.mark.parametrize(("count", "level"), [(2, 0.95), (9, 0.99)])
def test_interval_is_scipys(count, level):
    values = np.random.RandomState(count).normal(3, 2, count)
    expected = stats.ttest_1samp(values, 0).confidence_interval(level)
    np.testing.assert_allclose(intervals.interval(values.tolist(), level), expected)
