"""Builds gcloud commands and parses the workers' answers."""

import dataclasses
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ARCHIVE = "bert_jax_upload.tar.gz"
LAST_LINES = 20


class Failure(Exception):
    """One line for the user, and the exit status."""

    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status


@dataclasses.dataclass(frozen=True)
class State:
    """A run's state on one worker; `word` is as tpu_worker.sh prints it."""

    word: str
    log_bytes: int = 0
    status: int = 0

    @classmethod
    def parse(cls, text: str) -> "State | None":
        for line in reversed(text.splitlines()):
            mark, *fields = line.split()[:4] or [""]
            numbers = fields[1:] or ["none"]
            if mark == "bert_jax-state" and all(map(str.isdecimal, numbers)):
                return cls(fields[0], *map(int, numbers))
        return None

    @property
    def failed(self) -> bool:
        return self.word == "killed" or (self.word == "ended" and self.status != 0)

    def __str__(self) -> str:
        return f"ended with status {self.status}" if self.word == "ended" else "killed"


@dataclasses.dataclass(frozen=True)
class Commands:
    """Builds every command, for --dry-run and for calling it."""

    name: str
    zone: str
    run: str
    tree: str  # the repository's folder in a worker's home
    folder: Path  # for the archive and the workers' answers

    def gcloud(self, verb: str, *args: str) -> list[str]:
        program = ["gcloud", "compute", "tpus", "tpu-vm", verb]
        return [*program, *args, f"--zone={self.zone}"]

    def describe(self) -> list[str]:
        return self.gcloud("describe", self.name, "--format=json")

    def start_node(self) -> list[str]:
        return self.gcloud("start", self.name)

    def delete(self) -> list[str]:
        return self.gcloud("delete", self.name, "--quiet")

    def create(self, node: Mapping[str, Any]) -> list[str]:
        """Creates a slice like the one `describe` shows (the API's resource Node)."""
        scheduling = node.get("schedulingConfig", {})
        network = node.get("networkConfig", {})
        account = node.get("serviceAccount", {})
        flags = {
            "accelerator-type": node["acceleratorType"],
            "version": node["runtimeVersion"],
            "description": node.get("description"),
            "network": network.get("network"),
            "subnetwork": network.get("subnetwork"),
            "service-account": account.get("email"),
            "scopes": ",".join(account.get("scope", ())),
            "tags": ",".join(node.get("tags", ())),
            "labels": _pairs(node.get("labels", {})),
            "metadata": _pairs(node.get("metadata", {})),
        }
        given = [f"--{name}={value}" for name, value in flags.items() if value]
        for disk in node.get("dataDisks", ()):
            mode = "read-write" if disk.get("mode") == "READ_WRITE" else "read-only"
            given.append(f"--data-disk=source={disk['sourceDisk']},mode={mode}")
        given += [
            f"--{k}" for k in ("preemptible", "reserved", "spot") if scheduling.get(k)
        ]
        if not network.get("enableExternalIps"):
            given.append("--internal-ips")
        if node.get("shieldedInstanceConfig", {}).get("enableSecureBoot"):
            given.append("--shielded-secure-boot")
        return self.gcloud("create", self.name, *given)

    def copy(self) -> list[str]:
        archive = str(self.folder / ARCHIVE)
        return self.gcloud("scp", archive, f"{self.name}:", "--worker=all")

    def ssh(self, worker: str, command: str, *args: str) -> list[str]:
        where = (self.name, f"--worker={worker}", f"--command={command}")
        return self.gcloud("ssh", *where, *args)

    def unpack(self) -> list[str]:
        """Deletes files that only an earlier copy had; keeps .venv, work directories
        and data."""
        return self.ssh(
            "all",
            f'set -eu; mkdir -p "$HOME"/{shlex.quote(self.tree)}; '
            f'cd "$HOME"/{shlex.quote(self.tree)}; archive="$HOME"/{ARCHIVE}; '
            'tar -tzf "$archive" | LC_ALL=C sort > .launched.new; '
            "touch .launched; LC_ALL=C comm -23 .launched .launched.new | "
            'while IFS= read -r old; do rm -f -- "$old"; done; '
            'tar -xzf "$archive"; mv .launched.new .launched; rm "$archive"',
        )

    def set_up(self, command: str) -> list[str]:
        """The user's setup command: it may mount a disk or install a package."""
        return self.ssh(
            "all", f'cd "$HOME"/{shlex.quote(self.tree)} && {{ {command}\n}}'
        )

    def on_worker(self, verb: str, *args: str) -> str:
        program = f'bash "$HOME"/{shlex.quote(f"{self.tree}/launch/tpu_worker.sh")}'
        return f"{program} {shlex.join([verb, self.run, *args])}"

    def start(self, arguments: Sequence[str]) -> list[str]:
        return self.ssh("all", self.on_worker("start", *arguments))

    def status(self) -> list[str]:
        script = f'"$HOME"/{shlex.quote(f"{self.tree}/launch/tpu_worker.sh")}'
        return self.ssh(
            "all",
            f"if [ -e {script} ]; then {self.on_worker('status')}; "
            "else echo bert_jax-state none 0; fi",
            f"--output-directory={self.folder / 'status'}",
        )

    def follow(self, offset: int) -> list[str]:
        return self.ssh("0", self.on_worker("follow", str(offset)))

    def tail(self, worker: int) -> list[str]:
        return self.ssh(str(worker), self.on_worker("tail", str(LAST_LINES)))

    def stop(self, seconds: int) -> list[str]:
        return self.ssh("all", self.on_worker("stop", str(seconds)))


def _pairs(values: Mapping[str, str]) -> str:
    """KEY=VALUE,...; with another separator if values contain commas."""
    mark = "," if "," not in "".join(values.values()) else ":::"
    prefix = "" if mark == "," else f"^{mark}^"
    pairs = mark.join(f"{key}={value}" for key, value in sorted(values.items()))
    return prefix + pairs if pairs else ""


def run(command: Sequence[str]) -> subprocess.CompletedProcess:
    """Runs a command and captures its output."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )


def last_line(output: bytes) -> str:
    """The last line of an output, or of its errors: gcloud adds advice below them."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").split("\n")]
    found = [line for line in lines if line]
    errors = [line for line in found if line.startswith("ERROR:")]
    return (errors or found or ["no reason"])[-1]
