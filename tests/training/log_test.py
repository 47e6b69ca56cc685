"""The lines of a run's log."""

import time

from bert_jax.config import configuration
from bert_jax.training.log import Log
from bert_jax.training.seeds import Seeds


def test_time_left_does_not_count_compiling(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    config = configuration.load_config("configs/tiny.py", [])
    log = Log(Seeds(config), tmp_path, config, None)
    began = log._bar.start_t
    with log.compiling(64):
        now[0] += 900
    log.close()
    assert log._bar.start_t == log._bar.last_print_t == began + 900
