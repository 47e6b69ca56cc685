"""Eight simulated devices, shapes checked at run time, and the data at hand."""

import fcntl
import gc
import importlib.util
import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from bert_jax.runtime.environment import MALLOC

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("GLIBC_TUNABLES", MALLOC)  # or each program would start twice
# Most runs here are of the same small programs: each is compiled once for all workers
# and their processes, which inherit the folder's name. With a bound on its size, JAX
# locks the folder while a file is written.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "true"
os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(1 << 33)
os.environ["JAX_COMPILATION_CACHE_DIR"] = (
    os.environ["JAX_COMPILATION_CACHE_DIR"]
    if "PYTEST_XDIST_WORKER" in os.environ
    else tempfile.mkdtemp(prefix="bert_jax_compiled_")
)
if os.environ["JAX_PLATFORMS"] == "cpu":
    # Small programs: compiling them well would take longer than running them.
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8 "
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_prefer_vector_width=128 "
        "--xla_cpu_copy_insertion_use_region_analysis=false"
    )
    if metadata.version("jaxlib").startswith("0.10."):  # a later XLA refuses the flag
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

import pytest
from safetensors.numpy import load_file, save_file

from tests import micro_config, shapes

# A job in the background of a script ignores Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
shapes.check("bert_jax")
pytest.register_assert_rewrite("tests.runs", "tests.asking")


HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
# Files whose tests are slow without a mark: those outside BERT's own path.
SLOW_FILES = (
    *("experiments/", "examples/", "pages/docs_commands_", "data/table_"),
    "families/elmo/",
    *("models/kernels/activation_", "models/kernels/fused_"),
    *("models/kernels/splash_", "models/kernels/whole_row_"),
)
QUICK_FILES = ("experiments/estimate_", "experiments/programs_")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.resolve().relative_to(HERE).as_posix()
        if path.startswith(SLOW_FILES) and not path.startswith(QUICK_FILES):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    # A tenth of the suite's time went into looking for garbage among JAX's objects.
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 50)


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True)
def signals_as_before():
    before = {number: signal.getsignal(number) for number in (2, 15)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def one_device():
    """Runs in this process are on one device."""
    from tests.runs import one_device

    with one_device():
        yield


@pytest.fixture(autouse=True)
def registries_as_before():
    """Removes a test's registry entries, from its config file, before the next test."""
    from bert_jax import family, registry
    from bert_jax.data import masking
    from bert_jax.models import architectures
    from bert_jax.tasks import TASKS, objectives
    from bert_jax.training import optimizer

    registries: list[Any] = [
        TASKS,
        objectives.OBJECTIVES,
        family.FAMILIES,
        masking.MASKINGS,
        registry.ATTENTIONS,
        registry.LAYERS,
        registry.POSITIONS,
        architectures.HEADS,
        optimizer.OPTIMIZERS,
        optimizer.SCHEDULES,
        registry.TRANSFORMS,
        registry.WATCHERS,
    ]
    before, added = [set(each) for each in registries], {*registry.ADDED}
    yield
    for each, names in zip(registries, before, strict=True):
        for name in set(each) - names:
            del each[name]
    registry.ADDED.clear()
    registry.ADDED.update(added)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """Imports torch only for tests that need it: it takes seconds."""
    return pytest.importorskip("torch", reason="needs the parity extra")


@pytest.fixture(scope="session")
def transformers(torch) -> ModuleType:
    return pytest.importorskip("transformers", reason="needs the parity extra")


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Returns the path of a real data set's file, or skips where it is absent."""
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


def write_corpus(folder: Path) -> None:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    words += ["while", "seven", "cats", "watch", "it", "go"]
    rng = random.Random(0)
    with (folder / "corpus.txt").open("w", encoding="utf-8") as file:
        for _ in range(60):
            for _ in range(rng.randint(4, 11)):
                print(" ".join(rng.choices(words, k=rng.randint(3, 8))), file=file)
            print(file=file)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a folder that one worker makes and all read."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def find(name: str, make: Callable[[Path], None]) -> Path:
        folder = root / "once" / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                make(folder)
                (folder / "made").touch()
        return folder

    return find


@pytest.fixture(scope="session")
def corpus(once: Callable[..., Path]) -> Path:
    """A file of sixty short documents in Google's format, always the same."""
    return once("corpus", write_corpus) / "corpus.txt"


@pytest.fixture(scope="session")
def micro(corpus: Path, once: Callable[..., Path]) -> str:
    """Returns a custom config file that imports nothing."""

    def write(folder: Path) -> None:
        micro_config.pretraining(folder / "micro.py", corpus, "tiny:recipe=plain")

    return str(once("micro", write) / "micro.py")


@pytest.fixture(scope="session")
def plain(
    micro: str, once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A finished run: twenty steps on one device."""
    from tests.runs import run

    def train(folder: Path) -> None:
        run(micro, folder / "run")

    workdir = tmp_path_factory.mktemp("plain") / "run"
    shutil.copytree(once("plain", train) / "run", workdir)
    return workdir


@pytest.fixture(scope="session")
def left_to_right(micro: str, once: Callable[..., Path]) -> Path:
    """A finished run of a left-to-right model, which tests only read."""
    from tests.runs import run

    def train(folder: Path) -> None:
        run(micro, folder / "run", "--config.task.objective=ltr")

    return once("left_to_right", train) / "run"


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields a Hugging Face Hub. Its client's cache is in the test's own folder."""
    from huggingface_hub import constants

    from bert_jax.runtime import hub
    from tests.fake_hub import serving

    with serving() as fake:
        template = fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in {
            "ENDPOINT": fake.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        hub.download_snapshot.cache_clear()
        yield fake
        hub.download_snapshot.cache_clear()


@pytest.fixture(scope="session")
def golden() -> ModuleType:
    """tests/golden/make_transformers.py, with its output as CASES and ARRAYS."""
    path = GOLDEN / "make_transformers.py"
    spec = importlib.util.spec_from_file_location("make_transformers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CASES = json.loads((GOLDEN / "transformers.json").read_text())["cases"]
    module.ARRAYS = load_file(GOLDEN / "transformers.safetensors")
    return module


@pytest.fixture(scope="session")
def write_folder(golden):
    """Writes a case of `golden` as a model folder, which is new."""

    def write(folder, case, fields=None, change=None):
        folder.mkdir()
        stored = golden.CASES[case]
        config = {**stored["config"], **(fields or {})}
        tensors = golden.random_tensors(stored["shapes"], seed=0)
        if change is not None:
            tensors = change(tensors) or tensors
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces += [chr(ord("a") + n) for n in range(26)]
        pieces += [f"##{chr(ord('a') + n)}" for n in range(config["vocab_size"] - 31)]
        (folder / "vocab.txt").write_text("".join(f"{p}\n" for p in pieces))
        return folder

    return write


@pytest.fixture
def make_folder(write_folder, tmp_path):
    """Writes a folder as `write_folder` does, in any temporary location."""

    def make(case="BertForPreTraining-three_heads", fields=None, change=None):
        folder = tmp_path / f"folder_{len(list(tmp_path.iterdir()))}"
        return write_folder(folder, case, fields, change)

    return make
