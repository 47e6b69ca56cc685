"""A step's kernels by the time that they take, from a profile."""

import collections
import re
import tempfile
from pathlib import Path

import jax

from experiments.speed.our_step import OurStep

STEPS = 3
HEADER = ("ms a step", "kernel", "where")


def profile_step(step: OurStep, folder: Path) -> list[tuple[str, str, str]]:
    """Returns all kernels and their sum, the longest first, and where they come from.

    Its program is written to the folder.
    """
    step(2)
    text = step.compiled.as_text() or ""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.txt").write_text(text, encoding="utf-8")
    paths = dict(re.findall(r'%(\S+) = .*op_name="([^"]*)"', text))
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place):
            step(STEPS)
        seconds = sum_seconds(Path(place))
    rows = [("all", "", seconds.total()), *((k, paths.get(k, ""), s) for k, s in
            seconds.most_common())]  # fmt: skip
    return [(f"{1e3 * s / STEPS:.3f}", name[:40], path[-60:]) for name, path, s in rows]


def sum_seconds(folder: Path) -> collections.Counter[str]:
    """Returns seconds by kernel's name, added over a profile that JAX wrote.

    On a GPU a kernel that no instruction claims (a CUDA graph's) has its own name.
    """
    seconds: collections.Counter[str] = collections.Counter()
    for path in folder.rglob("*.xplane.pb"):
        planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
        gpus = [plane for plane in planes if plane.name.startswith("/device:GPU")]
        for line in (line for plane in gpus or planes for line in plane.lines):
            if gpus and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                name = dict(event.stats).get("hlo_op")
                # A loop's or a call's own kernels are there too.
                if gpus or (name and not re.match("while|call|conditional", str(name))):
                    seconds[str(name or event.name)] += event.duration_ns / 1e9
    return seconds
