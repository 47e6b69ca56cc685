"""launch.sh, as far as nothing has to be installed for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash")


def launch(*arguments, cwd=ROOT, root=ROOT, **environment):
    """Runs launch.sh with an environment of its own: nothing is there to be used."""
    return subprocess.run(
        [BASH, str(root / "launch.sh"), *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("script", ["launch.sh", ".ci/run"])
def test_scripts_parse_and_can_be_run(script):
    subprocess.run([BASH, "-n", str(ROOT / script)], check=True)
    assert os.access(ROOT / script, os.X_OK)


def test_ci_calls_launch_test(tmp_path):
    executable(tmp_path / "launch.sh", '#!/bin/bash\necho "$PWD $*"\nexit 7\n')
    script = executable(tmp_path / ".ci" / "run", (ROOT / ".ci" / "run").read_text())
    done = subprocess.run([str(script)], cwd="/", capture_output=True, text=True)
    assert done.stdout == f"{tmp_path} test\n"
    assert done.returncode == 7
    executable(tmp_path / "launch.sh", '#!/bin/bash\necho "$*" ${!BERT_JAX_@}\n')
    env = {**os.environ, "BERT_JAX_VENV": "/elsewhere"}
    done = subprocess.run(
        [str(script)], cwd="/", capture_output=True, text=True, env=env
    )
    assert (done.stdout, done.returncode) == ("test\ntest --all\n", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("help",),
        ("--help",),
        ("train",),
        ("-x",),
        ("",),
        ("tpu",),
        ("local",),
    ],
    ids=" ".join,
)
def test_usage(arguments):
    done = launch(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("usage: ./launch.sh")


def tools(folder: Path) -> Path:
    """A folder with the few programs that launch.sh needs before it has a Python."""
    folder.mkdir()
    names = "bash cat cksum env find flock ls mkdir rm tail"
    for name in names.split():
        if program := shutil.which(name):
            (folder / name).symlink_to(program)
    return folder


def test_without_a_python_that_will_do(tmp_path):
    path = tools(tmp_path / "bin")
    executable(path / "python3.12", "#!/bin/sh\necho 'no such version' >&2\nexit 127\n")
    executable(path / "python3", "#!/bin/sh\nexit 1\n")
    venv = tmp_path / "venv"
    own = {"PATH": str(path), "BERT_JAX_VENV": str(venv)}
    done = launch("--config=x", **own, BERT_JAX_ACCELERATOR="cpu")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no Python >= 3.11")
    assert not venv.exists()


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "precious").write_text("x")
    done = launch("--config=x", BERT_JAX_VENV=str(tmp_path / "venv"))
    assert done.returncode == 2
    assert "was not made by launch.sh" in done.stderr
    assert (tmp_path / "venv" / "precious").read_text() == "x"


def test_an_unknown_accelerator_is_named(tmp_path):
    done = launch(
        "--config=x", BERT_JAX_VENV=str(tmp_path / "v"), BERT_JAX_ACCELERATOR="npu"
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: BERT_JAX_ACCELERATOR=npu: cpu, cuda, cuda12, cuda13 or tpu\n"
    )


# Stands for a Python and its pip; what it is asked to run is written down.
FAKE_PYTHON = r"""#!/bin/bash
case "$*" in
  "-c import sys; print(*sys.version_info[:3])") echo 3 12 1 ;;
  -c*) echo "$FAKE" ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$FAKE" "$3/bin/python" ;;
  "-m pip "*)
    echo pip "$@" >>"$CALLS"; echo "${PIP_SAYS:-pip says}"; exit "${PIP_STATUS:-0}" ;;
  */launch/packages.py\ list*) echo "list:$3" ;;
  */launch/packages.py\ link)
    echo "${1%/launch/packages.py}" >"${0%/bin/python}/linked" ;;
  *) echo "$PWD" "$@" >>"$CALLS" ;;
esac
"""


@pytest.fixture
def fake(tmp_path):
    """Runs launch.sh with a fake Python; gives its result and the calls."""
    python = executable(tmp_path / "python", FAKE_PYTHON)

    def run(*arguments, root=ROOT, **environment):
        calls = tmp_path / "calls"
        calls.write_text("")
        base = {
            "FAKE": str(python),
            "PYTHON": str(python),
            "CALLS": str(calls),
            "BERT_JAX_VENV": str(tmp_path / "venv"),
            "BERT_JAX_ACCELERATOR": "cpu",
        }
        done = launch(*arguments, cwd=tmp_path, root=root, **(base | environment))
        return done, calls.read_text().splitlines()

    return run


def test_installs_once_and_runs_where_it_was_called(fake, tmp_path):
    done, calls = fake("--config=my config.py", "--mode=train")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert len(calls) == 2
    assert calls[0].startswith("pip -m pip install")
    required = tmp_path / "venv" / "bert_jax.requirements"
    assert calls[0].endswith(
        f" --constraint {ROOT}/requirements.txt --requirement {required} jax"
    )
    assert required.read_text() == "list:\n"
    assert (tmp_path / "venv" / "linked").read_text() == f"{ROOT}\n"
    main = f"{tmp_path} -m bert_jax.main"
    assert calls[1] == f"{main} --config=my config.py --mode=train"
    done, calls = fake()
    assert done.stderr == ""
    assert calls == [f"{main} --config={ROOT}/configs/tiny.py"]


def test_local_hands_everything_on(fake, tmp_path):
    done, calls = fake("local", "2", "--devices=4", "--", "--config=my config.py")
    assert done.returncode == 0, done.stderr
    local = f"{tmp_path} -m bert_jax.runtime.cluster.local"
    assert calls[1] == f"{local} 2 --devices=4 -- --config=my config.py"


def test_the_test_extra_stays_and_every_check_runs(fake, tmp_path):
    done, calls = fake("test", "-k", "name")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "venv" / "bert_jax.requirements").read_text() == "list:test\n"
    assert [call.split()[2] for call in calls[1:]] == ["ruff", "ruff", "mypy", "pytest"]
    assert calls[-1].startswith(f"{ROOT} -m pytest ")
    assert calls[-1].endswith("-reorder -k name tests")
    assert len(fake("--mode=train")[1]) == 1


TIERS = [
    ((), "--heart tests"),
    (("--quick",), "--quick tests"),
    (("--all", "-x"), "-x tests"),
    ((__file__,), __file__),
    (("--all", f"{__file__}::test_usage"), f"{__file__}::test_usage"),
]


@pytest.mark.parametrize(("given", "called"), TIERS)
def test_tiers_of_the_tests(fake, tmp_path, given, called):
    """--all in an environment of its own; of files that are named every test runs."""
    done, calls = fake("test", *given)
    assert done.returncode == 0, done.stderr
    assert calls[-1].endswith(f" {called}")
    assert ("--heart" in calls[-1]) == ("--heart" in called)
    folder = "venv.all" if "--all" in given else "venv"
    required = (tmp_path / folder / "bert_jax.requirements").read_text()
    assert required.startswith("list:test")
    assert ("parity" in required) == ("--all" in given)
    assert len(list(tmp_path.glob("venv*"))) == 1
    assert not fake("test", *given)[1][0].startswith("pip")


def test_an_interrupted_installation_starts_again(fake):
    done, _ = fake("--mode=train", PIP_STATUS="1")
    assert done.returncode == 2
    assert "pip says" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: installing failed")
    done, calls = fake("--mode=train")
    assert done.returncode == 0, done.stderr
    assert [call.split()[2] for call in calls] == ["pip", "bert_jax.main"]


def test_a_gpu_gets_its_packages_and_a_cpu_keeps_them(fake, tmp_path):
    smi = executable(
        tmp_path / "smi" / "nvidia-smi", "#!/bin/sh\necho '580.65.06, 9.0'\n"
    )
    path = f"{smi.parent}:{os.environ['PATH']}"
    _, calls = fake("--mode=train", BERT_JAX_ACCELERATOR="cuda", PATH=path)
    assert calls[0].endswith(" jax[cuda13]")
    assert len(fake("--mode=train", BERT_JAX_ACCELERATOR="cuda")[1]) == 1
    assert len(fake("--mode=train")[1]) == 1
    _, calls = fake("--mode=train", BERT_JAX_ACCELERATOR="cuda12")
    assert calls[0].endswith(" jax[cuda12]")


@pytest.mark.parametrize("answer", ["535.104.05, 8.0", "580.65.06, 7.0", "", "N/A"])
def test_an_older_driver_or_gpu_gets_cuda_12(fake, tmp_path, answer):
    smi = executable(tmp_path / "smi" / "nvidia-smi", f"#!/bin/sh\necho '{answer}'\n")
    path = f"{smi.parent}:{os.environ['PATH']}"
    _, calls = fake("--mode=train", BERT_JAX_ACCELERATOR="cuda", PATH=path)
    assert calls[0].endswith(" jax[cuda12]")


@pytest.fixture(params=["a[1]", "$x", "two words", "[a] $(x) 'b' *"])
def odd_root(request, tmp_path):
    """A copy of what launch.sh needs, in a folder of some name."""
    root = tmp_path / request.param
    (root / "launch").mkdir(parents=True)
    for name in ("launch.sh", "launch/packages.py", "requirements.txt"):
        shutil.copy(ROOT / name, root / name)
    shutil.copy(ROOT / "pyproject.toml", root / "pyproject.toml")
    return root


def test_any_name_of_a_folder(fake, odd_root):
    """The environment within it too; and nothing of it is expanded."""
    venv = odd_root / ".venv"
    for first in (True, False):
        done, calls = fake("test", "-k", "x", root=odd_root, BERT_JAX_VENV=str(venv))
        assert done.returncode == 0, done.stderr
        assert calls[0].startswith("pip") == first
        assert calls[-1].startswith(f"{odd_root} -m pytest ")
    assert (venv / "linked").read_text() == f"{odd_root}\n"
    _, calls = fake(root=odd_root, BERT_JAX_VENV=str(venv))
    assert calls[0].endswith(f" -m bert_jax.main --config={odd_root}/configs/tiny.py")


def test_nothing_is_written_into_the_repository(fake, odd_root):
    """It may be read-only, with BERT_JAX_VENV elsewhere."""
    before = sorted(odd_root.rglob("*"))
    for path in (*before, odd_root):
        path.chmod(0o555)
    done, _ = fake("--mode=train", root=odd_root)
    for path in (odd_root, *before):
        path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert sorted(odd_root.rglob("*")) == before


def test_the_repository_is_found_wherever_it_lies(odd_root, tmp_path):
    """With a real environment, but nothing installed in it."""
    (odd_root / "bert_jax").mkdir()
    (odd_root / "bert_jax" / "__init__.py").write_text("")
    venv = tmp_path / "a $y [2]"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    subprocess.run([python, odd_root / "launch" / "packages.py", "link"], check=True)
    program = "import bert_jax; print(bert_jax.__file__)"
    found = subprocess.run(
        [python, "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{odd_root}/bert_jax/__init__.py\n"


@pytest.mark.parametrize(
    "said",
    [
        "WARNING: Retrying (Retry(total=0)) after connection broken by "
        "'NewConnectionError('<x>: Failed to establish a new connection: [Errno -3] "
        "Temporary failure in name resolution')': /simple/absl-py/\n"
        "ERROR: No matching distribution found for absl-py>=2.1",
        "ERROR: ProxyError('Cannot connect to proxy.', ...)",
        "urllib3.exceptions: [Errno 101] Network is unreachable",
    ],
)
def test_without_a_network_that_is_what_is_said(fake, tmp_path, said):
    done, _ = fake("--mode=train", PIP_STATUS="1", PIP_SAYS=said)
    assert done.returncode == 2
    setup, line = done.stderr.splitlines()
    assert setup.startswith("setup: ") and line.startswith("error: no network: ")
    assert "No matching distribution" not in done.stderr
    assert str(tmp_path / "venv" / "bert_jax.log") in line
