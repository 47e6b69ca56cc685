"""How long reading a Hugging Face folder takes, and how much memory.

    python -m experiments.speed.import_weights [--size=base]

A folder of random weights is written and opened by `bert_jax.pretrained.load` in a
process of its own. The memory is that process's largest resident set while it reads,
less what it held before with everything imported; beside it stands the file's size.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from safetensors.numpy import save_file

from bert_jax.convert import config as theirs
from bert_jax.convert import layout
from bert_jax.models.config import BertConfig
from experiments.speed import measuring

MODULE = "experiments.speed.import_weights"


def write_folder(folder: Path, size: str) -> int:
    """A BertForPreTraining of `size` with random weights; gives the file's bytes."""
    config = importlib.import_module(f"configs.{size}").get_config()
    model = BertConfig.create(config.model, 30_522)
    random = np.random.default_rng(0)
    parts = ("bert", *layout.ARCHITECTURES["BertForPreTraining"])
    tensors = {
        parameter.huggingface: random.standard_normal(
            parameter.their_shape("huggingface"), np.float32
        )
        for part in parts
        for parameter in layout.parameters(part, model)
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    fields = {"model_type": "bert", "architectures": ["BertForPreTraining"]}
    fields |= {name: getattr(model, name) for name in theirs.FIELDS}
    (folder / "config.json").write_text(json.dumps(fields))
    return (folder / "model.safetensors").stat().st_size


def measure(folder: str) -> dict[str, float]:
    """Opens the folder in this process: seconds and bytes."""
    import jax

    from bert_jax import pretrained

    jax.block_until_ready(jax.numpy.zeros(1))  # the backend is started
    process = psutil.Process()
    before = peak = process.memory_info().rss
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    start = time.perf_counter()
    bert = pretrained.load(folder)
    jax.block_until_ready(bert.params)
    seconds = time.perf_counter() - start
    done.set()
    thread.join()
    return {"seconds": seconds, "before": before, "peak": peak}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="base", choices=("tiny", "base", "large"))
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    measuring.begin(MODULE, arguments, ("jax", "safetensors"))
    with tempfile.TemporaryDirectory() as folder:
        size = write_folder(Path(folder), options.size)
        start = time.perf_counter()
        command = [sys.executable, "-m", MODULE, f"--measure={folder}"]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        whole = time.perf_counter() - start
    figures = json.loads(result.stdout.splitlines()[-1])
    more = figures["peak"] - figures["before"]
    print(f"model.safetensors            {size / 1e6:9,.0f} MB")
    print(f"load                         {figures['seconds']:9.2f} s")
    print(f"whole process, with imports  {whole:9.2f} s")
    print(f"memory at most, on top       {more / 1e6:9,.0f} MB, {more / size:.2f} x")
    print(f"memory at most, in all       {figures['peak'] / 1e6:9,.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
