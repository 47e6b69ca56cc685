"""launch.sh with a fake Python and a fake gcloud: nothing is installed or reached."""

import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Replaces a Python and its pip, and records the arguments of each call.
FAKE_PYTHON = r"""#!/bin/bash
case "$*" in
  -c\ *importlinter*) echo "$PWD lint-imports" >>"$CALLS" ;;
  -c\ *) ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$FAKE" "$3/bin/python" ;;
  */launch/packages.py*) echo "packages:$2" ;;
  "-m pip "*) echo pip "$@" >>"$CALLS"; echo pip says; exit "${PIP_STATUS:-0}" ;;
  *) echo "$PWD" "$@" >>"$CALLS"; [[ "$*" != *"${FAILS:-nothing}"* ]] ;;
esac
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def launch(*arguments, cwd=ROOT, root=ROOT, **environment):
    return subprocess.run(
        ["bash", str(root / "launch.sh"), *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def fake(tmp_path):
    """Runs launch.sh with a fake Python. Returns its result and the Python's calls."""
    python = executable(tmp_path / "python", FAKE_PYTHON)
    calls = tmp_path / "calls"

    def run(*arguments, root=ROOT, **environment):
        calls.write_text("")
        base = {"FAKE": str(python), "PYTHON": str(python), "CALLS": str(calls)}
        base["BERT_JAX_VENV"] = str(tmp_path / "venv")
        base["BERT_JAX_ACCELERATOR"] = "cpu"
        done = launch(*arguments, cwd=tmp_path, root=root, **(base | environment))
        return done, calls.read_text().splitlines()

    return run


@pytest.mark.parametrize("script", ["launch.sh", "launch/tpu.sh", ".ci/run"])
def test_scripts_parse_and_are_executable(script):
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
    assert os.access(ROOT / script, os.X_OK)


def test_installs_once_and_runs_where_it_was_called(fake, tmp_path):
    done, calls = fake("--config=my config.py", "--mode=train")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert calls[0].startswith("pip -m pip install")
    packages = tmp_path / "venv" / "bert_jax.packages"
    given = f" --constraint {ROOT}/requirements.txt --requirement {packages} jax"
    assert calls[0].endswith(given)
    assert packages.read_text() == "packages:\n"
    main = f"{tmp_path} -m bert_jax.main"
    assert calls[1:] == [f"{main} --config=my config.py --mode=train"]
    done, calls = fake()
    assert done.stderr == ""
    assert calls == [f"{main} --config={ROOT}/configs/tiny.py"]


@pytest.mark.parametrize("extras", ["", "serve"])
def test_packages_of_a_clone_pretrain(extras, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["packages.py", extras])
    runpy.run_path(str(ROOT / "launch" / "packages.py"), run_name="__main__")
    names = {line.partition(">")[0] for line in capsys.readouterr().out.splitlines()}
    assert {"flax", "sentencex", "tensorflow-datasets"} <= names
    assert ("uvicorn" in names) == (extras == "serve")
    assert (tmp_path / "bert_jax.pth").read_text() == f"{ROOT}\n"


def test_interrupted_installation_starts_again(fake):
    done, _ = fake("--mode=train", PIP_STATUS="1")
    assert done.returncode == 2
    assert "pip says" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: installing failed")
    done, calls = fake("--mode=train")
    assert done.returncode == 0, done.stderr
    assert [call.split()[2] for call in calls] == ["pip", "bert_jax.main"]


def test_folder_of_someone_else_is_left_alone(fake, tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "precious").write_text("x")
    done, calls = fake("--config=x")
    assert (done.returncode, calls) == (2, [])
    assert "was not made by launch.sh" in done.stderr
    assert (tmp_path / "venv" / "precious").read_text() == "x"


@pytest.mark.parametrize(
    ("driver", "package"),
    [("580.65.06", "jax[cuda13]"), ("535.104.05", "jax[cuda12]"), ("N/A", "jax")],
)
def test_gpu_gets_its_packages_and_a_cpu_run_keeps_them(
    fake, tmp_path, driver, package
):
    smi = executable(tmp_path / "smi" / "nvidia-smi", f"#!/bin/bash\necho '{driver}'\n")
    path = f"{smi.parent}:{os.environ['PATH']}"
    _, calls = fake("--mode=train", BERT_JAX_ACCELERATOR="", PATH=path)
    assert calls[0].endswith(f" {package}")
    assert len(fake("--mode=train")[1]) == 1
    done, _ = fake("--mode=train", BERT_JAX_ACCELERATOR="npu")
    said = "error: BERT_JAX_ACCELERATOR=npu: cpu, cuda12, cuda13 or tpu\n"
    assert done.stderr == said


@pytest.mark.parametrize(
    ("given", "called"),
    [((), "-m not slow tests"), (("--all", "-x"), "-x tests"), ((__file__,), __file__)],
)
def test_tests_that_a_command_selects(fake, tmp_path, given, called):
    """--all has a separate environment. Every test of a named file runs."""
    done, calls = fake("test", *given)
    assert done.returncode == 0, done.stderr
    (pytest_call,) = (call for call in calls if " -m pytest " in call)
    assert pytest_call.endswith(f"--dist=loadfile {called}")
    checks = ["ruff format --check .", "ruff check .", "lint-imports", "mypy"]
    assert all(any(call.endswith(check) for call in calls) for check in checks)
    folder = "venv.all" if "--all" in given else "venv"
    packages = (tmp_path / folder / "bert_jax.packages").read_text()
    assert packages.startswith("packages:test")
    assert ("parity" in packages) == ("--all" in given)


@pytest.mark.parametrize("check", ["ruff check", "pytest"])
def test_check_that_fails_is_the_status(fake, check):
    assert fake("test", FAILS=check)[0].returncode == 1


def test_tpu_copies_and_runs_on_every_worker(tmp_path):
    gcloud = executable(tmp_path / "bin" / "gcloud", '#!/bin/bash\necho "$@"\n')
    path = f"{gcloud.parent}:{os.environ['PATH']}"
    given = ("tpu", "slice", "us-west4-a", "--", "--workdir=gs://b/run", "--x=a b")
    done = launch(*given, PATH=path, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    copy, run = done.stdout.splitlines()
    assert copy.startswith(f"compute tpus tpu-vm scp {tmp_path}/bert_jax.")
    assert " slice --zone=us-west4-a --worker=all --command=mkdir" in run
    assert run.endswith(r"./launch.sh --workdir=gs://b/run --x=a\ b")
    assert list(tmp_path.glob("*.gz")) == []
    dry = launch(*given[:3], "--dry-run", *given[3:], PATH="/usr/bin:/bin")
    assert dry.returncode == 0, dry.stderr
    started = [line.split()[0] for line in dry.stdout.splitlines()]
    assert started == ["bash", "gcloud", "gcloud"]
