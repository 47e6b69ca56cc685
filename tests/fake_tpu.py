"""A TPU slice: a gcloud that runs each worker's commands in a folder here."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Understands what launch/tpu.py asks for, and nothing else. Like the real one it calls
# a command again whose connection has broken off (exit status 255).
FAKE_GCLOUD = """#!PYTHON -IS
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
            "BERT_JAX_TPU_POLL": "0.3",
            "TMPDIR": str(folder),
        }

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.repository), *arguments], check=True)

    def program(self, text):
        (self.folder / "program").write_text(text)

    def start(self, *arguments, launch_sh=False):
        # Without what is installed: it needs nothing of that.
        command = [sys.executable, "-S", "-m", "launch.tpu", str(self.repository)]
        if launch_sh:
            command = ["./launch.sh", "tpu"]
        python = sys.executable if launch_sh else self.environment["PYTHON"]
        # A shell's background job ignores Ctrl-C, and so would what it starts.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [*command, "my-slice", "us-east5-a", *arguments],
                cwd=self.repository,
                env={**self.environment, "PYTHON": python},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

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
