"""launch.sh tpu of a slice that is preempted or stopped, with and without --restart."""

import json
import shlex
import shutil
import time

import pytest
from fake_tpu import SPOT, Cloud, finish, log

from launch.commands import Commands

# Goes on from the step that it finds on the shared disk.
RESUMING = """
steps="$FAKE_CLOUD/shared/steps$WORKER"
step=$(cat "$steps" 2>/dev/null || echo 0)
echo "from step $step"
while [ "$step" -lt 15 ]; do
  step=$((step + 1))
  echo "step $step"
  echo "$step" >"$steps.new"  # a kill must not leave an empty file
  mv "$steps.new" "$steps"
  sleep 0.1
done
"""


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.kill()


def assert_every_step(out):
    steps = [int(line.split()[1]) for line in out.splitlines() if line[:4] == "step"]
    assert sorted(set(steps)) == list(range(1, 16))
    # The last step before the preemption may have been shown and not been saved.
    assert len(steps) <= 16


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
