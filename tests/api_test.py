"""`bert_jax.make_config` and `bert_jax.fit`: as the command line, from Python."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from ml_collections import FrozenConfigDict

import bert_jax
from bert_jax.config import configuration, files
from bert_jax.training.log import Log
from bert_jax.workdir import metrics
from tests.micro import error_line
from tests.runs import losses

pytestmark = pytest.mark.usefixtures("one_device")


def test_config_is_that_of_the_command_line(tmp_path):
    fields = {"train.num_steps": 7, "task.text": "a b"}
    fields["evaluate.splits"] = ("dev", "test")
    found = bert_jax.make_config("finetune/text", fields, recipe="tiny")
    overrides = ["--config.train.num_steps=7", "--config.task.text=a b"]
    overrides.append("--config.evaluate.splits=('dev', 'test')")
    spec = f"{files.CONFIGS}/finetune/text.py:recipe=tiny"
    assert found == configuration.load_config(spec, overrides)
    (tmp_path / "own.py").write_text('extends = "tiny"\ndef get_config(c): pass\n')
    assert bert_jax.make_config(f"{tmp_path}/own.py") == bert_jax.make_config("tiny")
    for given, named, said in (
        (["nowhere"], {}, "no file nowhere"),
        (["tiny", {"train.steps": 1}], {}, "no such field"),
        (["tiny"], {"size": "base"}, "unknown argument 'size'"),
        (["finetune/text"], {"sise": ""}, "unknown argument 'sise'; it takes recipe, "),
    ):
        assert said in error_line(bert_jax.make_config, *given, **named)


@pytest.fixture
def config(micro):
    found = bert_jax.make_config(micro, {"train.num_steps": 20})
    found.evaluate.batch_size = 32  # set as an attribute
    return found


def test_run_is_that_of_the_command_line(config, plain, tmp_path, capfd):
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:  # where Python handles no signals
        found = pool.submit(bert_jax.fit, config, tmp_path / "run").result()
    assert losses(found.workdir) == pytest.approx(losses(plain), rel=1e-5)
    (dev,) = metrics.read_metrics(tmp_path / "run", "dev")
    assert found.step == 20 and found.scores == {
        "dev": {k: v for k, v in dev.items() if k not in ("step", "time")}
    }
    assert "dev at step 20" in capfd.readouterr().out
    assert found.model.fill_mask("the quick [MASK] fox")
    assert signal.getsignal(signal.SIGINT) is before
    again = bert_jax.fit(FrozenConfigDict(config), tmp_path / "run")
    assert again.scores == found.scores and config.evaluate.batch_size == 32


@pytest.mark.slow
def test_interrupted_run_goes_on(config, plain, tmp_path, monkeypatch):
    write = Log.write_step

    def interrupts(self, step, found):
        write(self, step, found)
        if step == 7:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Log, "write_step", interrupts)
    with pytest.raises(KeyboardInterrupt, match="goes on"):
        bert_jax.fit(config, tmp_path / "run")
    assert len(losses(tmp_path / "run")) == 7
    found = bert_jax.fit(config, tmp_path / "run")
    assert losses(found.workdir) == pytest.approx(losses(plain), rel=1e-5)


def test_load_refuses(config, tmp_path):
    config.train.seeds = 2
    line = error_line(bert_jax.fit, config, tmp_path / "run")
    assert "config.train.seeds=2: from Python one" in line
    assert not (tmp_path / "run").exists()
