"""LoRA: thin matrices and heads learn and are saved, their base is read."""

import itertools
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import flatten_dict

import bert_jax
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.runtime import storage
from bert_jax.training import run_config, setup, sharding
from bert_jax.training.step import Step
from bert_jax.workdir import metrics
from tests import micro_data
from tests.runs import here, losses

TARGETS = "('query','value','output')"
FROM_BASE = ("--config.init_from=base", "--config.tokenizer.vocab_file=")
BOTH = (
    *(f"--config.{x}.batch_size=8" for x in ("train", "evaluate")),
    "--config.checkpoint.keep=3",
)
LORA = (
    *(*BOTH, *FROM_BASE, "--config.model.lora_rank=3", "--config.model.lora_alpha=6"),
    *(f"--config.model.lora_targets={TARGETS}", "--config.train.num_steps=8"),
    *("--config.optimizer.learning_rate=0.05", "--config.optimizer.warmup_fraction=0"),
    "--config.checkpoint.save_every=4",
)
TEXT = {"text": "the quick brown fox"}


@pytest.fixture(scope="module")
def trained(once):
    """A folder with the data, the base and the LoRA run of texts."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            micro_data.write_inputs("text", folder)
            here("--config=in/micro.py", "--workdir=base", *BOTH)
            here("--config=in/micro.py", "--workdir=run", *LORA)

    return once("lora_text", make)


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    """A copy of it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    recorded = tmp_path / "run" / "config.json"  # which names its base by a whole path
    recorded.write_text(recorded.read_text().replace(str(trained), str(tmp_path)))
    return tmp_path


def saved(run):
    steps = sorted(int(path.name) for path in (run / "checkpoints").iterdir())
    found = ocp.StandardCheckpointer().restore(
        (run / "checkpoints" / str(steps[-1]) / "params").absolute()
    )
    return flatten_dict(found)


def predict(*flags):
    Path("row.jsonl").write_text(json.dumps(TEXT))
    out, _ = here("--mode=predict", "--input=row.jsonl", *flags)
    return json.loads(out)


@pytest.mark.slow
def test_run_answers_as_its_merged_export(trained, monkeypatch, tmp_path):
    """Every way of opening it: base + alpha / rank A B, by a formula of NumPy."""
    monkeypatch.chdir(trained)
    own = saved(Path("run"))
    heads = {path[0] for path in own} - {"bert"}
    assert heads == {"lora", "sequence_classification"}
    base, merged = (
        flatten_dict(weights.read_weights(x).params) for x in ("base", "run")
    )
    assert base.keys() == merged.keys()
    changed = set()
    for path, expected in base.items():
        if path[0] != "bert":
            np.testing.assert_array_equal(merged[path], own[path])
            continue
        adapter = ("lora", *path[:-1])
        if path[-1] == "kernel" and (*adapter, "a") in own:
            a, b = (np.float64(own[*adapter, x]) for x in "ab")
            product = a.reshape(-1, 3) @ b.reshape(3, -1)
            expected = expected + 2.0 * product.reshape(expected.shape)
            changed.add("/".join(path[2:-1]))
            assert np.abs(product).max() > 1e-3
        np.testing.assert_allclose(merged[path], expected, atol=1e-6)
    assert changed == {
        f"layer_0/{x}"
        for x in ("attention/query", "attention/value", "attention/output", "output")
    }
    answer = predict("--workdir=run")
    out = tmp_path / "model"
    here("--workdir=run", "--mode=export", f"--output={out}")
    assert_near(predict(f"--config.init_from={out}"), answer)
    assert_near(predict("--config.init_from=run"), answer)
    assert_near(bert_jax.load("run").predict([TEXT])[0], answer)
    assert not {"lora"} & bert_jax.load(out).params.keys()
    scores, _ = here("--workdir=run", "--mode=evaluate")
    (found,) = [x for x in map(json.loads, scores.splitlines()) if x["split"] == "dev"]
    expected = metrics.read_metrics(Path("run"), "dev")[-1]
    for score, value in found.items():
        if score != "split":
            assert value == pytest.approx(expected[score], abs=1e-6), score
    # PEFT's form, which is read with the base exported.
    base = tmp_path / "base_model"
    here("--config.init_from=base", "--mode=export", f"--output={base}")
    adapter = json.loads((out / "adapter" / "adapter_config.json").read_text())
    adapter["base_model_name_or_path"] = str(base)
    (out / "adapter" / "adapter_config.json").write_text(json.dumps(adapter))
    read = flatten_dict(weights.read_weights(out / "adapter").params)
    for path, expected in flatten_dict(weights.read_weights(out).params).items():
        np.testing.assert_allclose(read[path], expected, atol=1e-6)


def assert_near(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "scores" and isinstance(value, dict):
            assert found[name] == pytest.approx(value, abs=2e-5)
        elif not isinstance(value, list | float):
            assert found[name] == value


@pytest.mark.slow
def test_run_resumes_and_notices_another_base(folder):
    straight, expected = losses("run"), saved(folder / "run")
    shutil.rmtree("run/checkpoints/8")
    _, err = here("--workdir=run")
    assert "resuming at step 4" in err
    np.testing.assert_array_equal(losses("run"), straight)
    found = saved(folder / "run")
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value)
    shutil.rmtree("base/checkpoints/2")  # those of an earlier step are left
    shown = "is not what this run began with; restore it"
    for flags in (
        ("--mode=predict", "--input=in/dev.jsonl"),
        ("--mode=export", "--output=out"),
        ("--config.train.num_steps=20", "--config.train.extend=True"),
    ):
        _, error = here("--workdir=run", *flags, status=2)
        (line,) = [x for x in error.splitlines() if x.startswith("error:")]
        assert "what config.init_from names (LoRA's base)" in line and shown in line
    assert not Path("out").exists()


@pytest.mark.slow
def test_eight_devices_and_micro_batches_compute_as_one(folder):
    """And stacked layers as the others, from the same seed."""
    rates = ("model.hidden_dropout_prob", "model.attention_probs_dropout_prob")
    none = [f"--config.{name}=0" for name in rates]
    one, state = two_steps(jax.devices()[:1], 1, none)
    split = [f"--config.mesh.{axis}=2" for axis in ("data", "fsdp", "tensor")]
    other = [*none, *split, "--config.model.scan_layers=True"]
    eight, same = two_steps(jax.devices(), 2, other)
    for before, after in zip(one, eight, strict=True):
        for name, value in before.items():
            np.testing.assert_allclose(after[name], value, rtol=2e-4, err_msg=name)
    moments = [x.size for x in jax.tree.leaves(state.opt_state) if x.ndim]
    sizes = [x.size for x in jax.tree.leaves(state.params)]
    assert sum(moments) == 2 * sum(sizes)
    assert sum(x.size for x in jax.tree.leaves(same.params)) == sum(sizes)


def two_steps(devices, micro_batches, flags):
    """The metrics of two steps, and the state after them."""
    config = run_config.config_of(
        storage.storage_path("none"),
        configuration.load_config("in/micro.py", [*LORA, *flags]),
        configuration.parse_overrides([*LORA, *flags]),
        is_inference=False,
    )
    task = setup.build_task(config, storage.storage_path("none"), from_data=True)
    mesh = sharding.make_mesh(task.config, devices=devices)
    base, (read, _) = setup.read_start(task, mesh)
    step = Step(task, mesh, base)
    state, found = step.first_state(read), []
    compiled = None
    for batch in itertools.islice(task.batches(0, slice(None), 0), 2):
        placed = sharding.place_batch(batch, mesh, config.train.batch_size)
        if compiled is None:
            compiled = step.trace(state, placed, micro_batches).lower().compile()
        given = (step.seeds.array, np.float32(0.05), step.constants)
        state, metrics = compiled(state, placed, *given)
        found.append(jax.device_get(metrics))
    return found, state


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--config.model.lora_targets=('query','keys')",),
            "config.model.lora_targets: 'keys' names no matrix of the encoder, which "
            "has attention/key, attention/output, attention/query, attention/value, "
            "intermediate, output",
        ),
        (("--config.tokenizer.add=('<x>',)",), "rows of config.tokenizer.add would"),
    ],
)
@pytest.mark.slow
def test_mistakes_take_one_line(folder, flags, message):
    _, error = here("--config=in/micro.py", "--workdir=wrong", *LORA, *flags, status=2)
    (line,) = [x for x in error.splitlines() if x.startswith("error:")]
    assert message in line and not Path("wrong/config.json").exists()
