"""launch.sh tpu, against a gcloud that runs each worker's commands in a folder here."""

import os
import shlex
import shutil
import signal
import sys

import pytest
from fake_tpu import Cloud, finish, log


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.kill()


ARGUMENTS = ["--config=a b.py", '--config.init_from=it\'s "$HOME"; `x` \\ *', "--x=\n"]

SHORT = """
echo "worker $WORKER in $PWD"
printf '<%s>' "$@"
for i in 1 2 3; do echo "step $i"; done
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
        "while :; do sleep 0.2; done"
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
        "while :; do sleep 0.2; done"
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
    cloud.program("while :; do echo working; sleep 0.2; done")
    process = cloud.start("--", "--x")
    cloud.wait_for(log(cloud, 1), "working")
    pid = cloud.folder / "worker1" / "bert_jax_runs" / "run" / "pid"
    os.killpg(int(pid.read_text()), signal.SIGKILL)
    status, _, err = finish(process)
    assert status == 1
    assert err.splitlines()[-1] == "error: worker 1 of my-slice killed"


COUNTING = """
for i in $(seq 20); do echo "line $i of worker $WORKER"; sleep 0.1; done
"""


@pytest.mark.parametrize("drop", ["100 1", "100 2"], ids=["ends", "tries_again"])
def test_a_dropped_connection_shows_every_line_once(cloud, drop):
    cloud.program(COUNTING)
    (cloud.folder / "drop").write_text(drop)
    status, out, err = cloud.launch("--", "--x")
    assert status == 0, err
    assert out == log(cloud).read_text()
    assert out.count("line") == 20


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
    cloud.wait_for(log(cloud), "line 20 ")
    (cloud.folder / "end").touch()
    status, out, err = finish(process)
    assert status == 0, err
    assert out == log(cloud).read_text()
    status, out, err = cloud.launch("--attach")  # it has ended by now
    assert (status, out) == (0, log(cloud).read_text()), err


def test_stop_lets_it_save(cloud):
    cloud.program(
        "trap 'sleep 0.3; echo saved; exit 143' TERM\n"
        "echo started; while :; do sleep 0.2; done"
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


def test_launch_sh_calls_it(cloud):
    cloud.environment["PYTHON"] = sys.executable
    process = cloud.start("--dry-run", "--", *ARGUMENTS, launch_sh=True)
    assert finish(process) == cloud.launch("--dry-run", "--", *ARGUMENTS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no -- before the arguments of the command to start: write ./launch.sh"),
        (("--dryrun", "--"), "--dryrun: no such option; did you mean --dry-run?"),
        (("--unknown", "--"), "--unknown: no such option"),
        (("-x", "--"), "-x: no such option"),
        (("--stop=1",), "--stop=1: --stop takes no value"),
        (("--setup", "--"), "--setup: write --setup=COMMAND"),
        (("--attach", "--", "--x"), "--attach starts nothing: leave out what is"),
        (("--attach", "--restart"), "no -- before the arguments"),
        (("--recreate", "--", "--x"), "--recreate is for --restart: add it"),
        (("--run=../x", "--"), "--run is '../x': write at most 63 letters"),
        (("--run=²", "--"), "--run is '²': write at most 63 letters"),
        (("extra", "--"), "NAME and ZONE are needed before --, not my-slice us-east5"),
    ],
)
def test_wrong_arguments(cloud, arguments, said):
    status, out, err = cloud.launch(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {said}") and err.count("\n") == 1
    assert err.endswith("; `./launch.sh tpu` says more\n")


NO_PROJECT = """
ERROR: (gcloud.compute.tpus.tpu-vm.describe) The required property [project] is not
currently set. It can be set on a per-command basis with the [--project] flag.

  $ gcloud config set project VALUE

or it can be set temporarily by the environment variable [CLOUDSDK_CORE_PROJECT]
"""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (f"cat >&2 <<'END'{NO_PROJECT}END\nexit 1", "gcloud has no project: `gcloud"),
        ("echo ERROR: no account >&2; echo advice >&2; exit 1", "ERROR: no account"),
        ("echo no JSON", "not described: not JSON: no JSON"),
        ("echo '[1]'", "not described: not JSON: [1]"),
    ],
)
def test_what_gcloud_says_instead_of_a_description(cloud, tmp_path, answer, said):
    (tmp_path / "bin" / "gcloud").write_text(f"#!/bin/bash\n{answer}\n")
    status, _, err = cloud.launch("--", "--x")
    assert status == 2
    assert err.startswith("error: ") and said in err and err.count("\n") == 1


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
