"""Eight simulated devices, shapes checked at run time, and the data at hand."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests leave nothing in the home folder, and compile what they are about.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
# The programs are small: compiling them well would take longer than running them.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8"
    + " --xla_backend_optimization_level=0"
    + " --xla_llvm_disable_expensive_passes=true"
)

import pytest
from jaxtyping import install_import_hook

install_import_hook("bert_jax", "beartype.beartype")


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Gives the path of a real data set's file, or skips where it is absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("BERT_JAX_TEST_DATA", default))

    def find(name: str) -> Path:
        path = root / name
        if not path.exists():
            pytest.skip(f"no {name} under BERT_JAX_TEST_DATA ({root})")
        return path

    return find


@pytest.fixture
def make_builder() -> Callable[..., Path]:
    """Makes a data set of TFDS with one split, and gives its folder."""
    import tensorflow_datasets as tfds
    from array_record.python import array_record_module

    def make(folder, name, rows, features, split="train", file_format="array_record"):
        home = folder / name / "1.0.0"
        home.mkdir(parents=True)
        features = tfds.features.FeaturesDict(features)
        template = tfds.core.ShardedFileTemplate(
            data_dir=home, dataset_name=name, filetype_suffix=file_format, split=split
        )
        path = template.sharded_filepath(shard_index=0, num_shards=1)
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for row in rows:
            writer.write(features.serialize_example(row))
        writer.close()
        info = tfds.core.SplitInfo(
            name=split,
            shard_lengths=[len(rows)],
            num_bytes=0,
            filename_template=template,
        )
        tfds.folder_dataset.write_metadata(
            data_dir=home, features=features, split_infos=[info], check_data=False
        )
        return home

    return make


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of sixty short documents in Google's format, always the same."""
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    words += ["while", "seven", "cats", "watch", "it", "go"]
    rng = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(60):
            for _ in range(rng.randint(4, 11)):
                print(" ".join(rng.choices(words, k=rng.randint(3, 8))), file=file)
            print(file=file)
    return path


MICRO = """
extends = "tiny"

def get_config(config):
    config.model.hidden_size = 32
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 64
    config.model.max_position_embeddings = 32
    config.model.hidden_dropout_prob = 0.1
    config.model.attention_probs_dropout_prob = 0.1
    config.tokenizer.vocab_size = 64
    config.corpus.sources = ("sentences:CORPUS",)
    config.corpus.data_dir = "DATA"
    config.corpus.max_seq_length = 32
    config.corpus.dev_fraction = 0.2
    config.masking.max_predictions_per_seq = 6
    config.train.num_steps = 20
    config.train.batch_size = 16
    config.train.log_every = 1
    config.evaluate.batch_size = 16
    config.checkpoint.save_every = 10
    return config
"""


@pytest.fixture(scope="session")
def micro(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A config file of one's own that imports nothing."""
    folder = tmp_path_factory.mktemp("micro")
    text = MICRO.replace("CORPUS", str(corpus)).replace("DATA", str(folder / "data"))
    (folder / "micro.py").write_text(text)
    return str(folder / "micro.py")


@pytest.fixture(scope="session")
def plain(micro: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: twenty steps on one device, dropout on."""
    workdir = tmp_path_factory.mktemp("plain") / "run"
    flags = os.environ["XLA_FLAGS"].replace("count=8", "count=1")
    program = [sys.executable, "-m", "bert_jax.main"]
    subprocess.run(
        [*program, f"--config={micro}", f"--workdir={workdir}"],
        env={**os.environ, "XLA_FLAGS": flags},
        check=True,
        timeout=240,
    )
    return workdir
