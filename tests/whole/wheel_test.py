"""The wheel, in a project whose own packages have names that this repository has."""

import json
import os
import re
import subprocess
import sys
import urllib.request
import zipfile

import pytest

from tests import runs

pytestmark = pytest.mark.slow
MAIN = (sys.executable, "-m", "bert_jax.main")
COMMAND = (sys.executable, "-m", "bert_jax")
TINY = (
    *(
        "--config=tiny:recipe=plain",
        "--workdir=pre",
        "--config.corpus.sources=sentences:text.txt",
    ),
    *("--config.tokenizer.vocab_size=60", "--config.train.num_steps=2"),
    *("--config.corpus.dev_fraction=0.2", "--config.train.batch_size=4"),
)
TEXT = (
    *("--config=configs/finetune/text.py:recipe=tiny", "--config.init_from=mini"),
    *("--config.task.train_file=rows.csv", "--config.task.dev_file=rows.csv"),
    *("--config.train.num_steps=2", "--config.task.max_seq_length=16"),
)
ROWS = "text,label\n" + "".join(
    f"good film {n},yes\nbad film {n},no\n" for n in range(4)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a function that runs a command in the project, with the wheel alone."""
    pytest.importorskip("setuptools")
    source, project = (tmp_path_factory.mktemp(x) for x in ("source", "project"))
    for name in ("bert_jax", "configs"):
        (source / name).symlink_to(runs.ROOT / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "requirements.txt"):
        (source / name).symlink_to(runs.ROOT / name)
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "-q", "-w", source / "dist", "."], cwd=source, check=True)
    (path,) = (source / "dist").iterdir()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(source / "installed")
    for name in ("configs", "families", "experiments", "pretrained"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("OWN = True\n")
    paths = [source / "installed", runs.ROOT / "tests" / "without_torch"]
    variables = {**runs.environment(), "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def run(*command):
        return subprocess.run(
            command,
            cwd=project,
            env=variables,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=runs.LIMIT,
        ).stdout

    run.project, run.installed = project, source / "installed"
    run.variables = variables
    return run


def test_a_wheel_has_one_package(run):
    found = {path.name for path in run.installed.iterdir()}
    assert [name for name in found if not name.endswith(".dist-info")] == ["bert_jax"]


def test_configs_and_mini_are_found_from_any_folder(run):
    text = "\n".join(f"the cat sees dog number {x}.\n\na dog\n\n" for x in range(30))
    (run.project / "text.txt").write_text(text)
    run(*MAIN, *TINY)
    (run.project / "rows.csv").write_text(ROWS)
    run(*MAIN, *TEXT, "--workdir=fit")
    answers = run(*MAIN, "--mode=predict", "--workdir=fit", "--input=rows.csv")
    assert len(answers.splitlines()) == 8
    assert json.loads(answers.splitlines()[0])["label"] in ("yes", "no")
    program = """if True:
        import configs, bert_jax, bert_jax.registry
        assert configs.OWN and "gpt" in bert_jax.registry.FAMILIES
        print(bert_jax.load("mini").fill_mask("The United [MASK] of America.")[0][0])
    """
    assert "states" in run(sys.executable, "-c", program)


def test_commands_are_in_the_wheel(run):
    (run.project / "rows.csv").write_text(ROWS)
    given = ("init_from=mini", "recipe=tiny", "train.num_steps=2")
    out = run(*COMMAND, "cross-validate", "rows.csv", "folds", "--folds=2", *given)
    assert out.splitlines()[-1].endswith("over 2 parts")
    lines = (run.project / "folds/2_folds/out_of_fold.jsonl").read_text().splitlines()
    assert [json.loads(line)["gold"] for line in lines] == ["yes", "no"] * 4
    given = ("--model=mini", "--texts=rows.csv", "--query=good film 3", "--top=2")
    out = run(*COMMAND, "search", *given)
    assert out.splitlines()[0] == "1.000  rows.csv:8: good film 3"
    pytest.importorskip("matplotlib", reason="needs the extra report")
    given = ("--grid=optimizer.learning_rate=1e-4", "--output=grid")
    out = run(*COMMAND, "sweep", *TEXT, *given)
    assert "optimizer.learning_rate=1e-4" in out
    assert (run.project / "grid" / "scores.png").is_file()


def test_a_wheel_serves(run):
    pytest.importorskip("uvicorn")
    command = (*MAIN, "--mode=serve", "--config.init_from=mini", "--port=0")
    with subprocess.Popen(
        command, cwd=run.project, env=run.variables, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            lines = iter(server.stderr.readline, "")
            (address,) = re.findall(
                r"http://\S+\d", next(x for x in lines if "://" in x)
            )
            row = json.dumps({"text": "The United [MASK] of America."}).encode()
            page = f"{address}/predict"
            with urllib.request.urlopen(page, row, timeout=runs.LIMIT) as answer:
                assert json.load(answer)["masks"][0][0]["token"] == "states"
        finally:
            server.terminate()
