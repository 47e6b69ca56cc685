"""launch.sh tpu, against a gcloud that runs each worker's commands in a folder here."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.commands import Commands

ROOT = Path(__file__).resolve().parents[1]

# Understands what launch/tpu.py asks for, and nothing else. Like the real one it calls
# a command again whose connection has broken off (exit status 255).
FAKE_GCLOUD = """#!PYTHON
import json, os, shutil, subprocess, sys
from pathlib import Path

cloud = Path(os.environ["FAKE_CLOUD"])
with (cloud / "calls").open("a") as file:
    file.write(json.dumps(["gcloud", *sys.argv[1:]]) + "\\n")
group, verb, name, *rest = sys.argv[1:4], *sys.argv[4:]
assert group == ["compute", "tpus", "tpu-vm"], sys.argv
flags = dict(f"{arg[2:]}=".split("=", 1) for arg in rest if arg.startswith("--"))
flags = {name: value.removesuffix("=") for name, value in flags.items()}
assert flags.pop("zone") == "us-east5-a"
state = (cloud / "state").read_text()
workers = sorted(cloud.glob("worker*"))
if verb == "describe":
    assert (name, flags) == ("my-slice", {"format": "json"})
    if state == "DELETED":
        sys.exit("ERROR: (gcloud...describe) NOT_FOUND: there is no such node")
    node = json.loads((cloud / "node").read_text())
    node |= {"state": state, "networkEndpoints": [{} for _ in workers]}
    print(json.dumps(node))
    sys.exit()
if verb == "delete":
    (cloud / "state").write_text("DELETED")
    sys.exit("ERROR: connection lost" if (cloud / "lost").exists() else 0)
if verb == "create":
    if (cloud / "full").exists():
        (cloud / "full").unlink()
        sys.exit("ERROR: There is no more capacity in the zone")
    (cloud / "state").write_text("READY")
    sys.exit("ERROR: connection lost" if (cloud / "lost").exists() else 0)
if verb == "start":
    (cloud / "state").write_text("READY")
    sys.exit()
if state != "READY" or (cloud / "unreachable").exists():
    if verb == "ssh" and "status" in flags["command"]:
        (cloud / "refused").touch()
    sys.exit("ERROR: (gcloud) connection timed out")
if verb == "scp":
    assert rest[0] == "my-slice:" and flags == {"worker": "all"}
    for worker in workers:
        shutil.copy(name, worker)
    sys.exit()
assert verb == "ssh" and name == "my-slice"
asked = flags["worker"]
here = workers if asked == "all" else [workers[int(asked)]]
failed, started = 0, []
for worker in here:
    own = {"HOME": str(worker), "WORKER": worker.name[-1]}
    out = None
    if "output-directory" in flags:
        out = open(f"{flags['output-directory']}/{worker.name[-1]}.log", "wb")
    drop = cloud / "drop"
    if "follow" in flags["command"] and drop.exists():
        size, attempts = map(int, drop.read_text().split())
        drop.unlink()
        for _ in range(attempts):
            broken = subprocess.Popen(["bash", "-c", flags["command"]], cwd=worker,
                                      env={**os.environ, **own}, stdout=subprocess.PIPE)
            os.write(1, broken.stdout.read(size))
            broken.kill()
        if attempts == 1:
            sys.exit(255)
    started.append(subprocess.Popen(["bash", "-c", flags["command"]], cwd=worker,
                                    env={**os.environ, **own}, stdout=out))
sys.exit(max(process.wait() for process in started))
"""

# Stands for the Python of a worker: PROGRAM is what bert_jax.main would be.
FAKE_PYTHON = """#!/bin/bash
case "$*" in
  "-c import sys; print(*sys.version_info[:3])") echo 3 12 1 ;;
  -c*) echo "$PYTHON" ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$PYTHON" "$3/bin/python" ;;
  "-m pip "*) ;;
  "-m bert_jax.main "*) shift 2; exec bash "$FAKE_CLOUD/program" "$@" ;;
esac
"""


SPOT = {
    "acceleratorType": "v5litepod-16",
    "runtimeVersion": "v2-alpha-tpuv5-lite",
    "schedulingConfig": {"spot": True},
    "networkConfig": {"network": "default", "enableExternalIps": True},
}


class Cloud:
    """A slice of two workers, and a repository to be copied there."""

    def __init__(self, folder: Path):
        self.folder = folder / "cloud"
        for worker in ("worker0", "worker1", "shared"):
            (self.folder / worker).mkdir(parents=True)
        (self.folder / "state").write_text("READY")
        (self.folder / "node").write_text(json.dumps(SPOT))
        self.repository = folder / "it's a repository"
        shutil.copytree(
            ROOT / "launch",
            self.repository / "launch",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for name in ("launch.sh", "requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.repository)
        for name in ("tracked.txt", "new.txt", "ignored.txt"):
            (self.repository / name).write_text(name)
        (self.repository / ".gitignore").write_text("ignored.txt\n")
        self.git("init", "--quiet")
        self.git("add", "--", ".gitignore", "launch", "launch.sh", "tracked.txt")
        self.git("add", "--", "requirements.txt", "pyproject.toml")
        programs = folder / "bin"
        programs.mkdir()
        fakes = {
            "gcloud": FAKE_GCLOUD.replace("PYTHON", sys.executable),
            "python": FAKE_PYTHON,
        }
        for name, text in fakes.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHON": str(programs / "python"),
            "FAKE_CLOUD": str(self.folder),
            "BERT_JAX_ACCELERATOR": "cpu",
            "BERT_JAX_TPU_POLL": "0.1",
            "TMPDIR": str(folder),
        }

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.repository), *arguments], check=True)

    def program(self, text):
        (self.folder / "program").write_text(text)

    def start(self, *arguments, launch_sh=False):
        command = [sys.executable, "-m", "launch.tpu", str(self.repository)]
        if launch_sh:
            command = ["./launch.sh", "tpu"]
        python = sys.executable if launch_sh else self.environment["PYTHON"]
        return subprocess.Popen(
            [*command, "my-slice", "us-east5-a", *arguments],
            cwd=self.repository,
            env={**self.environment, "PYTHON": python},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def launch(self, *arguments):
        return finish(self.start(*arguments))

    def calls(self):
        """gcloud's calls, each as often as it follows itself only once."""
        with (self.folder / "calls").open() as file:
            return [json.loads(line) for line in file]

    def verbs(self):
        return [call[4] for call in self.calls()]

    def set_state(self, state):
        """As a whole: it is read meanwhile."""
        (self.folder / "state.new").write_text(state)
        (self.folder / "state.new").rename(self.folder / "state")

    def wait_for(self, path, text=""):
        end = time.monotonic() + 60
        while not path.exists() or text not in path.read_text():
            assert time.monotonic() < end, f"no {text!r} in {path}"
            time.sleep(0.02)

    def pids(self):
        files = self.folder.glob("worker*/bert_jax_runs/run/pid")
        return [int(path.read_text()) for path in files]

    def kill(self):
        for pid in self.pids():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def log(cloud, worker=0):
    return cloud.folder / f"worker{worker}" / "bert_jax_runs" / "run" / "log"


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.kill()


ARGUMENTS = ["--config=a b.py", '--config.init_from=it\'s "$HOME"; `x` \\ *', "--x=\n"]

SHORT = """
echo "worker $WORKER in $PWD"
printf '<%s>' "$@"
for i in 1 2 3; do echo "step $i"; sleep 0.1; done
"""


def test_a_run_on_every_worker(cloud):
    cloud.program(SHORT)
    status, out, err = cloud.launch("--", *ARGUMENTS)
    assert status == 0, err
    arguments = "".join(f"<{argument}>" for argument in ARGUMENTS)
    for worker in (0, 1):
        home = cloud.folder / f"worker{worker}"
        tree = home / cloud.repository.name
        expected = f"worker {worker} in {tree}\n{arguments}step 1\nstep 2\nstep 3\n"
        assert log(cloud, worker).read_text().endswith(expected)
        assert not (tree / ".git").exists() and not (tree / "ignored.txt").exists()
        assert (tree / "new.txt").read_text() == "new.txt"
        assert os.access(tree / "launch.sh", os.X_OK)
        assert [path.name for path in home.glob("*.gz")] == []
    assert out == log(cloud).read_text()


def test_a_second_copy_removes_what_is_gone_and_keeps_what_runs_made(cloud):
    cloud.program("exit 0")
    assert cloud.launch("--", "--x")[0] == 0
    tree = cloud.folder / "worker1" / cloud.repository.name
    (tree / "runs").mkdir()
    (tree / "runs" / "metrics").write_text("kept")
    (cloud.repository / "tracked.txt").unlink()
    (cloud.repository / "new.txt").write_text("changed")
    status, _, err = cloud.launch("--", "--x")
    assert status == 0, err
    assert not (tree / "tracked.txt").exists()
    assert (tree / "new.txt").read_text() == "changed"
    assert (tree / "runs" / "metrics").read_text() == "kept"


def test_dry_run_prints_what_is_called_then(cloud):
    done = cloud.launch("--dry-run", "--", *ARGUMENTS)
    assert done[0] == 0 and done[2] == ""
    assert not (cloud.folder / "calls").exists()
    printed: list[list[str]] = []
    for word in shlex.split(done[1], comments=True):
        if word == "gcloud":
            printed.append([])
        printed[-1].append(word)
    cloud.program(
        'if [ "$WORKER" = 0 ]; then exit 7; fi\n'
        "trap 'exit 143' TERM\n"
        "while :; do sleep 0.05; done"
    )
    assert cloud.launch("--", *ARGUMENTS)[0] == 7
    called: list[list[str]] = []
    for call in cloud.calls():
        # A log may be asked for once more, from where it was left.
        follows = [one[-2] for one in called if "follow" in one[-2]]
        if call not in called and not (follows and "follow" in call[-2]):
            called.append(call)
    expected = [call for i, call in enumerate(printed) if call not in printed[:i]]
    assert called == expected
    assert "stop run" in expected[-1][7]


def test_setup_runs_first_on_every_worker(cloud):
    cloud.program("cat mounted")
    setup = """--setup=echo "disk of $WORKER" >mounted # it's there"""
    status, out, err = cloud.launch(setup, "--", "--x")
    assert status == 0, err
    assert out.endswith("disk of 0\n")
    assert log(cloud, 1).read_text().endswith("disk of 1\n")
    status, _, err = cloud.launch("--setup=echo no disk; exit 3", "--", "--x")
    assert status == 3
    assert "no disk\n" in err
    assert err.endswith("error: --setup failed; what it said is above\n")


def test_a_failing_worker_ends_all(cloud):
    cloud.program(
        'if [ "$WORKER" = 1 ]; then sleep 0.5; echo "boom"; exit 7; fi\n'
        "trap 'echo saved; exit 143' TERM\n"
        "while :; do sleep 0.05; done"
    )
    status, _, err = cloud.launch("--", "--x")
    assert status == 7
    assert "worker 1 ended with status 7; its last lines:\n" in err
    assert "\nboom\n" in err
    assert err.splitlines()[-1] == "error: worker 1 of my-slice ended with status 7"
    assert log(cloud).read_text().endswith("saved\n")
    for pid in cloud.pids():
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)


def test_a_killed_process_is_a_failure(cloud):
    cloud.program("while :; do echo working; sleep 0.05; done")
    process = cloud.start("--", "--x")
    cloud.wait_for(log(cloud, 1), "working")
    pid = cloud.folder / "worker1" / "bert_jax_runs" / "run" / "pid"
    os.killpg(int(pid.read_text()), signal.SIGKILL)
    status, _, err = finish(process)
    assert status == 1
    assert err.splitlines()[-1] == "error: worker 1 of my-slice killed"


COUNTING = """
for i in $(seq 40); do echo "line $i of worker $WORKER"; sleep 0.05; done
"""


@pytest.mark.parametrize("drop", ["100 1", "100 2"], ids=["ends", "tries_again"])
def test_a_dropped_connection_shows_every_line_once(cloud, drop):
    cloud.program(COUNTING)
    (cloud.folder / "drop").write_text(drop)
    status, out, err = cloud.launch("--", "--x")
    assert status == 0, err
    assert out == log(cloud).read_text()
    assert out.count("line") == 40


def test_a_slice_that_does_not_answer_for_a_while(cloud):
    cloud.program(COUNTING)
    process = cloud.start("--", "--x")
    cloud.wait_for(log(cloud), "line 3 ")
    (cloud.folder / "unreachable").touch()
    cloud.wait_for(cloud.folder / "refused")
    (cloud.folder / "unreachable").unlink()
    status, out, err = finish(process)
    assert status == 0, err
    assert "not every worker answers" in err
    assert out == log(cloud).read_text()


def test_detached_and_attached_again(cloud):
    end = 'while [ ! -e "$FAKE_CLOUD/end" ]; do sleep 0.05; done; echo end'
    cloud.program(COUNTING + end)
    process = cloud.start("--", "--x")
    cloud.wait_for(log(cloud), "line 3 ")
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status == 130
    assert "the run continues" in err
    status, _, err = cloud.launch("--", "--x")
    assert status == 2
    assert "a run is under way on worker 0; --attach follows it" in err
    process = cloud.start("--attach")
    cloud.wait_for(log(cloud), "line 40 ")
    (cloud.folder / "end").touch()
    status, out, err = finish(process)
    assert status == 0, err
    assert out == log(cloud).read_text()
    status, out, err = cloud.launch("--attach")  # it has ended by now
    assert (status, out) == (0, log(cloud).read_text()), err


def test_stop_lets_it_save(cloud):
    cloud.program(
        "trap 'sleep 0.3; echo saved; exit 143' TERM\n"
        "echo started; while :; do sleep 0.05; done"
    )
    process = cloud.start("--restart", "--", "--x")
    cloud.wait_for(log(cloud), "started")
    status, _, err = cloud.launch("--stop")
    assert (status, err) == (0, "stopped\n")
    status, _, err = finish(process)
    assert status == 143
    assert err.endswith("error: my-slice: the run was stopped\n")
    assert log(cloud).read_text().endswith("saved\n")
    assert log(cloud, 1).read_text().endswith("saved\n")


# Goes on from the step that it finds on the shared disk.
RESUMING = """
steps="$FAKE_CLOUD/shared/steps$WORKER"
step=$(cat "$steps" 2>/dev/null || echo 0)
echo "from step $step"
while [ "$step" -lt 30 ]; do
  step=$((step + 1))
  echo "step $step"
  echo "$step" >"$steps.new"  # a kill must not leave an empty file
  mv "$steps.new" "$steps"
  sleep 0.05
done
"""


def assert_every_step(out):
    steps = [int(line.split()[1]) for line in out.splitlines() if line[:4] == "step"]
    assert sorted(set(steps)) == list(range(1, 31))
    # The last step before the preemption may have been shown and not been saved.
    assert len(steps) <= 31


def preempt(cloud):
    """As the cloud does it: the machines end, and others with empty disks come."""
    cloud.wait_for(log(cloud), "step 5\n")
    cloud.set_state("PREEMPTED")
    cloud.kill()
    for worker in ("worker0", "worker1"):
        shutil.rmtree(cloud.folder / worker)
        (cloud.folder / worker).mkdir()


def test_preempted_and_restarted(cloud):
    cloud.program(RESUMING)
    process = cloud.start("--restart", "--", "--x")
    preempt(cloud)
    before = cloud.verbs().count("describe")
    while cloud.verbs().count("describe") == before:  # it has noticed
        assert process.poll() is None, finish(process)
        time.sleep(0.02)
    cloud.set_state("READY")
    status, out, err = finish(process)
    assert status == 0, err
    assert "PREEMPTED" in err
    assert_every_step(out)
    assert out.count("from step 0\n") == 1


def test_a_preempted_slice_is_created_again_as_it_was(cloud):
    cloud.program(RESUMING)
    (cloud.folder / "full").touch()
    process = cloud.start("--restart", "--recreate", "--", "--x")
    preempt(cloud)
    status, out, err = finish(process)
    assert status == 0, err
    assert_every_step(out)
    assert "not created (ERROR: There is no more capacity in the zone)" in err
    program = ["gcloud", "compute", "tpus", "tpu-vm"]
    verbs = [call[4] for call in cloud.calls()]
    assert verbs.count("delete") == 1 and verbs.count("create") == 2
    (create,) = {tuple(call) for call in cloud.calls() if call[4] == "create"}
    flags = ["--accelerator-type=v5litepod-16", "--version=v2-alpha-tpuv5-lite"]
    flags += ["--network=default", "--spot", "--zone=us-east5-a"]
    assert list(create) == [*program, "create", "my-slice", *flags]
    # It prints each of the two commands before running it.
    assert shlex.join(create) in err.splitlines()


def test_what_gcloud_did_without_knowing_is_not_done_again(cloud):
    cloud.program(RESUMING)
    (cloud.folder / "lost").touch()
    process = cloud.start("--restart", "--recreate", "--", "--x")
    preempt(cloud)
    status, _, err = finish(process)
    assert status == 0, err
    assert err.count("(ERROR: connection lost); trying again") == 2
    verbs = [call[4] for call in cloud.calls()]
    assert verbs.count("delete") == verbs.count("create") == 1


def test_everything_that_describe_tells_is_asked_for_again(tmp_path):
    node = {
        "acceleratorType": "v4-32",
        "runtimeVersion": "tpu-ubuntu2204-base",
        "schedulingConfig": {"preemptible": True},
        "networkConfig": {"subnetwork": "inner", "enableExternalIps": False},
        "serviceAccount": {"email": "a@b.c", "scope": ["one", "two"]},
        "tags": ["ours"],
        "labels": {"team": "bert", "cost": "low"},
        "metadata": {"startup-script": "mount a, b"},
        "dataDisks": [{"sourceDisk": "projects/p/disk", "mode": "READ_ONLY_MANY"}],
        "shieldedInstanceConfig": {"enableSecureBoot": True},
    }
    commands = Commands("my-slice", "us-east5-a", "run", "tree", tmp_path)
    assert commands.create(node)[4:] == [
        *("create", "my-slice", "--accelerator-type=v4-32"),
        *("--version=tpu-ubuntu2204-base", "--subnetwork=inner"),
        *("--service-account=a@b.c", "--scopes=one,two", "--tags=ours"),
        *("--labels=cost=low,team=bert", "--metadata=^:::^startup-script=mount a, b"),
        "--data-disk=source=projects/p/disk,mode=read-only",
        *("--preemptible", "--internal-ips", "--shielded-secure-boot"),
        "--zone=us-east5-a",
    ]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({**SPOT, "queuedResource": "mine"}, "it belongs to a queued resource"),
        ({"acceleratorType": "v4-8"}, "`describe` shows no runtimeVersion"),
    ],
)
def test_a_slice_that_could_not_be_created_again_is_not_deleted(cloud, node, words):
    (cloud.folder / "node").write_text(json.dumps(node))
    status, _, err = cloud.launch("--restart", "--recreate", "--", "--x")
    assert status == 2
    assert err.startswith(f"error: my-slice: --recreate: {words}")
    assert [call[4] for call in cloud.calls()] == ["describe"]


def test_preempted_without_restart_says_what_to_do(cloud):
    cloud.program(RESUMING)
    process = cloud.start("--", "--x")
    preempt(cloud)
    status, _, err = finish(process)
    assert status == 1
    last = err.splitlines()[-1]
    assert last.startswith("error: my-slice: the slice is PREEMPTED; ")
    assert "--restart" in last


def test_a_run_that_saved_itself_on_a_signal_is_restarted(cloud):
    cloud.program(
        'steps="$FAKE_CLOUD/shared/$WORKER"\n'
        'if [ -e "$steps" ]; then echo resumed; exit 0; fi\n'
        'touch "$steps"; exit 143'
    )
    status, out, err = cloud.launch("--restart", "--", "--x")
    assert status == 0, err
    assert out.endswith("resumed\n")


def test_a_stopped_slice_is_started_with_restart_only(cloud):
    cloud.program("echo done")
    (cloud.folder / "state").write_text("STOPPED")
    status, _, err = cloud.launch("--", "--x")
    assert (status, err) == (2, "error: my-slice in us-east5-a is STOPPED\n")
    status, out, err = cloud.launch("--restart", "--", "--x")
    assert status == 0, err
    assert out.endswith("done\n")


def test_launch_sh_calls_it(cloud):
    cloud.environment["PYTHON"] = sys.executable
    process = cloud.start("--dry-run", "--", *ARGUMENTS, launch_sh=True)
    assert finish(process) == cloud.launch("--dry-run", "--", *ARGUMENTS)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--unknown", "--"),
        ("--attach", "--", "--x"),
        ("--attach", "--restart"),
        ("--recreate", "--", "--x"),
        ("--run=../x", "--"),
        ("extra", "--"),
    ],
)
def test_usage(cloud, arguments):
    status, out, err = cloud.launch(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: ./launch.sh tpu NAME ZONE")


def test_nothing_to_attach_to(cloud):
    status, _, err = cloud.launch("--attach")
    assert status == 2
    assert err == "error: my-slice: there is no run to attach to\n"


def test_without_git(cloud):
    shutil.rmtree(cloud.repository / ".git")
    cloud.environment["GIT_CEILING_DIRECTORIES"] = str(cloud.repository.parent)
    status, _, err = cloud.launch("--", "--x")
    assert status == 2
    assert err.count("\n") == 1 and "only a git checkout" in err
    assert not (cloud.folder / "worker0" / cloud.repository.name).exists()


def test_without_gcloud(cloud, tmp_path):
    (tmp_path / "bin" / "gcloud").unlink()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").symlink_to(shutil.which("git"))
    cloud.environment["PATH"] = str(tools)
    status, _, err = cloud.launch("--", "--x")
    assert status == 2
    assert err == "error: gcloud is not installed: see the Google Cloud SDK\n"
