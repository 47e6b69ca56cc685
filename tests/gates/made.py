"""The runs of the gates: texts, configs, digests, and the maker of the golden files.

    python -m tests.gates.made FOLDER

writes two files of tests/golden/743dd25e. `made.tar.xz` holds a run that SIGTERM
stopped (`run`), its prepared data (`data`) and its export (`export`). `numbers.json`
holds the losses of the runs, and the digests of the prepared texts. Commit 743dd25e
made both, on a CPU, with the packages of requirements.txt. They are never made anew:
the code that reads them may change, they may not.
"""

import hashlib
import json
import os
import random
import signal
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path("tests") / "golden" / "743dd25e"  # commands run in the root
STEPS = 24

MODEL = """
    config.model.hidden_size = 16
    config.model.num_hidden_layers = 1
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 32
    config.model.max_position_embeddings = 48
    config.model.hidden_dropout_prob = 0.1
    config.model.attention_probs_dropout_prob = 0.1
    config.train.num_steps = {steps}
    config.train.batch_size = 16
    config.train.log_every = 1
    config.train.eval_every = 0
    config.evaluate.batch_size = 16
    config.checkpoint.save_every = 4
    config.checkpoint.keep = 1
"""
CONFIGS = {
    "pretraining": (
        "tiny:recipe=plain",
        """
    config.corpus.sources = ("sentences:GOLDEN/corpus.txt",)
    config.corpus.data_dir = "FOLDER/data"
    config.corpus.max_seq_length = 32
    config.corpus.dev_fraction = 0.2
    config.tokenizer.vocab_size = 64
    config.masking.max_predictions_per_seq = 6
""",
    ),
    "pairs": (
        "finetune/text:recipe=tiny",
        """
    config.tokenizer.vocab_file = "FOLDER/vocab.txt"
    config.task.train_file = "FOLDER/train.jsonl"
    config.task.dev_file = "FOLDER/dev.jsonl"
    config.task.text_b = "text_b"
    config.task.max_seq_length = 48
    config.optimizer.learning_rate = 1e-3
""",
    ),
    "squad": (
        "finetune/squad:recipe=tiny",
        """
    config.tokenizer.vocab_file = "FOLDER/vocab.txt"
    config.task.train_file = "FOLDER/train.json"
    config.task.dev_file = "FOLDER/dev.json"
    config.task.max_seq_length = 32
    config.task.doc_stride = 12
    config.task.max_query_length = 10
    config.optimizer.learning_rate = 1e-3
""",
    ),
}
# Texts in several scripts, composed and not, prepared in each way: the config's lines.
PREPARED = {
    "pairs": "",
    "cased": "config.tokenizer.lowercase = False",
    "full_sentences": "config.corpus.nsp = False",
    "packed": "config.corpus.packing = True; config.corpus.short_seq_prob = 0.5",
    "whole_words": "config.masking.whole_word = True",
}
_PREPARED = """
    config.corpus.sources = ("text:GOLDEN/*.text", "jsonl:GOLDEN/*.jsonl")
    config.corpus.data_dir = "FOLDER/data"
    config.corpus.max_seq_length = 48
    config.corpus.dev_fraction = 0.25
    config.tokenizer.vocab_size = 200
    config.masking.max_predictions_per_seq = 8
    config.train.batch_size = 8
    config.evaluate.batch_size = 8
"""
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
WORDS += ["while", "seven", "cats", "watch", "it"]
NAMES = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("an", "el", "ir", "os", "um")]


def write_config(name: str, folder: Path) -> Path:
    """Writes the config of a run, and the data that it reads but for the corpus."""
    extends, lines = CONFIGS[name]
    folder.mkdir(parents=True, exist_ok=True)
    if name != "pretraining":
        _write_rows(folder)
    return _write(folder, extends, MODEL.format(steps=STEPS) + lines)


def write_preparation(name: str, folder: Path) -> Path:
    """Writes a config of PREPARED."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"    {line.strip()}\n" for line in PREPARED[name].split(";"))
    return _write(folder, "tiny:recipe=plain", _PREPARED + lines)


def _write(folder: Path, extends: str, lines: str) -> Path:
    lines = lines.replace("FOLDER", str(folder)).replace("GOLDEN", GOLDEN.as_posix())
    text = (
        f'extends = "{extends}"\n\n\ndef get_config(config):{lines}    return config\n'
    )
    (folder / "gate.py").write_text(text)
    return folder / "gate.py"


def _write_rows(folder: Path) -> None:
    """Pairs whose last words tell their label, and questions with their answers."""
    rng = random.Random(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *NAMES]
    pieces += ["where", "is", "in", "."]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    for split, size in (("train", 150), ("dev", 37)):
        rows, paragraphs = [], []
        for number in range(size):
            label = rng.choice(["one", "two"])
            one, two = (rng.choices(WORDS, k=rng.randint(2, 9)) for _ in range(2))
            two.append("cats" if label == "one" else "fox")
            row = {"text": " ".join(one), "text_b": " ".join(two), "label": label}
            rows.append(json.dumps(row) + "\n")
            some = rng.sample(NAMES, k=8)
            facts = [
                f"{a} is in {b} ." for a, b in zip(some[:4], some[4:], strict=True)
            ]
            asked, answer = some[number % 4], some[4 + number % 4]
            context = " ".join([*facts, *rng.choices(WORDS, k=rng.randint(0, 30))])
            start = context.index(f"in {answer} .") + 3
            question = {
                "id": f"{split}{number}",
                "question": f"where is {asked}",
                "answers": [{"text": answer, "answer_start": start}],
            }
            paragraphs.append({"context": context, "qas": [question]})
        (folder / f"{split}.jsonl").write_text("".join(rows))
        data = {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}
        (folder / f"{split}.json").write_text(json.dumps(data))


def metrics(workdir: Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl without times and speeds."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    unsteady = ("time", "sequences_per_second", "tokens_per_second")
    return [
        {k: x for k, x in json.loads(line).items() if k not in unsteady}
        for line in lines
    ]


def losses(workdir: Path) -> list[float]:
    """Returns the loss of each training step; each step must be there once."""
    lines = [line for line in metrics(workdir) if line["split"] == "train"]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [line["loss"] for line in lines]


def scores(workdir: Path) -> dict[str, float]:
    """Returns the last scores of the dev split."""
    *_, last = (line for line in metrics(workdir) if line["split"] == "dev")
    return {name: x for name, x in last.items() if isinstance(x, float)}


def newest(workdir: Path) -> int:
    """Returns the step of the newest complete checkpoint; 0 if there is none."""
    names = [path.name for path in workdir.glob("checkpoints/*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def predictions(workdir: Path) -> dict[str, bytes]:
    """Returns the contents of a run's prediction files by name."""
    return {path.name: path.read_bytes() for path in workdir.glob("predictions/*")}


def saved_state(workdir: Path) -> dict[str, np.ndarray]:
    """Returns every array of the last checkpoint by name."""
    import jax
    import orbax.checkpoint as ocp

    folder = workdir / "checkpoints" / str(newest(workdir))
    found = {}
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        with ocp.PyTreeCheckpointer() as checkpointer:
            as_numpy = jax.tree.map(
                lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
                checkpointer.metadata(part).item_metadata.tree,
            )
            tree = checkpointer.restore(part, restore_args=as_numpy)
        for path, leaf in jax.tree.leaves_with_path(tree):
            found[f"{part.name}{jax.tree_util.keystr(path)}"] = np.asarray(leaf)
    assert len(found) > 50
    return found


def digest(arrays: Iterator[Mapping[str, Any]]) -> str:
    """Returns the SHA-256 of records: names, dtypes, shapes and contents, in order."""
    found = hashlib.sha256()
    for record in arrays:
        for name in sorted(record):
            array = np.asarray(record[name])
            found.update(f"{name} {array.dtype} {array.shape} ".encode())
            found.update(array.tobytes())
    return found.hexdigest()


def records(folder: Path) -> dict[str, str]:
    """Returns the digests of a prepared folder's splits and vocabulary."""
    from bert_jax.data.table import Table

    def rows(split: str) -> Iterator[dict[str, Any]]:
        tokens, size_a, is_random_next = map(
            Table.open(folder / split).get, ("tokens", "size_a", "is_random_next")
        )
        ids = np.split(tokens.values.astype(np.int32), tokens.ends[:-1])
        columns = zip(ids, size_a.values, is_random_next.values, strict=True)
        for row, size, random_next in columns:
            # Lists, because the golden numbers have no type for an empty one.
            both = {"tokens_a": list(row[:size]), "tokens_b": list(row[size:])}
            yield both | {"is_random_next": random_next}

    found = {split: digest(rows(split)) for split in ("train", "dev")}
    vocabulary = (folder / "vocab.txt").read_bytes()
    return found | {"vocab.txt": hashlib.sha256(vocabulary).hexdigest()}


def prepared(name: str, folder: Path) -> dict[str, str]:
    """Prepares the texts as PREPARED[name] says; returns digests of the result.

    The digest of the batches covers masking and packing.
    """
    from bert_jax.config import configuration
    from bert_jax.data import loader

    config = configuration.load_config(str(write_preparation(name, folder)), [])
    batches = [loader.batch_at(config, step) for step in (0, 1, 9)]
    batches.append(loader.batch_at(config, 0, "dev"))
    (pairs,) = (folder / "data").glob("pairs-*")
    return records(pairs) | {"batches": digest(iter(batches))}


def outputs(folder: Path) -> dict[str, Any]:
    """Returns outputs of the model in a folder for two rows of token ids."""
    import bert_jax

    ids = np.array([[2, 9, 4, 11, 3, 17, 3], [2, 30, 31, 4, 3, 0, 0]])
    mask = (ids > 0).astype(np.int32)
    segments = np.array([[0, 0, 0, 0, 0, 1, 1], [0] * 7])
    found = bert_jax.load(folder).apply(ids, mask, segments)
    return {
        "masked_lm_logits": np.asarray(found["masked_lm_logits"])[:, 2, :8].tolist(),
        "next_sentence_logits": np.asarray(found["next_sentence_logits"]).tolist(),
        "pooled": np.asarray(found["pooled"]).tolist(),
    }


def main(folder: Path) -> None:
    """Makes everything, in an empty folder that has the texts."""
    import tests.conftest  # noqa: F401  # devices and flags, as the tests have them
    from tests import runs

    numbers: dict[str, Any] = {"runs": {}, "prepared": {}}
    with tempfile.TemporaryDirectory() as temporary:
        for name in CONFIGS:
            home = Path(temporary) / name
            config = f"--config={write_config(name, home)}"
            runs.finish(runs.start(config, f"--workdir={home / 'run'}"))
            numbers["runs"][name] = {
                "losses": losses(home / "run"),
                "scores": scores(home / "run"),
            }
        home = Path(temporary) / "stopped"
        config = f"--config={write_config('pretraining', home)}"
        process = runs.start(config, f"--workdir={home / 'run'}")
        runs.wait_for_lines(home / "run", 5, process)
        process.send_signal(signal.SIGTERM)
        runs.finish(process, 143)
        export = ("--mode=export", f"--output={home / 'export'}")
        runs.finish(runs.start(f"--workdir={home / 'run'}", *export))
        with tarfile.open(folder / "made.tar.xz", "w:xz") as archive:
            for part in ("run", "data", "export"):
                archive.add(home / part, part)
        (pairs,) = (home / "data").glob("pairs-*")
        numbers["records"] = records(pairs)
        numbers["outputs"] = outputs(home / "export")
        for name in PREPARED:
            numbers["prepared"][name] = prepared(name, Path(temporary) / name)
    (folder / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    os.chdir(ROOT)
    main(Path(sys.argv[1]))
