"""The fine-tuning tasks of the tables: their configs, and their files in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.data.tables import BY_NAME
from bert_jax.errors import UserError
from bert_jax.runtime import hub
from bert_jax.tasks.glue.data import TASKS as GLUE


class Task(NamedTuple):
    """A task.

    Attributes:
      title: Title as the report names it.
      config: Name in configs/finetune/, with its arguments but for the size.
      folders: Names that its folder may have. The first is the usual one.
      fields: Patterns of the file of each config field, of which the first with a match
        counts. "" means the folder itself, which must have `inside`.
      inside: Patterns that the folder must match, each at least once.
    """

    title: str
    config: tuple[str, ...]
    folders: tuple[str, ...]
    fields: Mapping[str, tuple[str, ...]]
    inside: tuple[str, ...] = ()


class Found(NamedTuple):
    """A task's config and the fields that name its data."""

    config: tuple[str, ...]
    fields: tuple[str, ...]


def _glue(name: str) -> Task:
    dev = "dev_matched.tsv*" if name == "mnli" else "dev.tsv*"
    title = GLUE[name].title
    return Task(
        "MNLI-m" if name == "mnli" else title,
        ("glue.py", f"task={name}"),
        (title, f"glue/{title}"),
        {"task.data_dir": ()},
        ("train.tsv*", dev),
    )


def _squad(version: str) -> Task:
    files = {
        f"task.{split}_file": (
            f"{split}-v{version}.json*",
            f"{split}-v{version}*.json*",
        )
        for split in ("train", "dev")
    }
    title = f"SQuAD {version}"
    return Task(title, ("squad.py", f"version={version}"), ("SQuAD", "squad"), files)


_NER = {
    "task.train_file": ("eng.train", "*train*.conll", "train.txt"),
    "task.dev_file": ("eng.testa", "*dev*.conll", "valid.txt"),
    "task.test_file": ("eng.testb", "*test*.annotated", "*test*.conll", "test.txt"),
}
_NER_FOLDERS = ("CoNLL-2003", "conll2003", "NER", "ner")
TASKS = {
    **{name: _glue(name) for name in GLUE if name != "ax"},
    "squad": _squad("1.1"),
    "squad2": _squad("2.0"),
    "swag": Task(
        "SWAG",
        ("swag.py",),
        ("SWAG", "swag"),
        {"task.train_file": ("train.csv",), "task.dev_file": ("val.csv",)},
    ),
    "ner": Task("NER", ("ner.py",), _NER_FOLDERS, _NER),
    # By experiments.paper.features, not bert_jax.main: the columns are the same files.
    "features": Task("NER, features", (), _NER_FOLDERS, _NER),
    "imdb": Task(
        "IMDb",
        ("imdb.py",),
        ("aclImdb",),
        {"task.data_dir": ()},
        ("train/pos/*.txt", "train/neg/*.txt"),
    ),
}
# IMDb's reviews as JSON lines, with labels. test is used as dev, as in the papers.
_IMDB_LINES = Task(
    "IMDb",
    ("text.py",),
    ("IMDB", "imdb"),
    {"task.train_file": ("train.jsonl*",), "task.dev_file": ("test.jsonl*",)},
)


def find(name: str, folders: Sequence[str]) -> Found | str:
    """Returns a task's data, or a description of the missing files.

    Args:
      folders: Folders to look in. The first with the data counts. `tfds:glue` and
        `hf:nyu-mll/glue` have GLUE's.
    """
    task = TASKS[name]
    lacks = f"no folder {' or '.join(task.folders)}"
    for folder in folders:
        if folder.startswith(BY_NAME):
            if name in GLUE:
                by_task = "" if folder.startswith(hub.PREFIX) else f"/{name}"
                return Found(task.config, (f"task.data_dir={folder}{by_task}",))
            continue
        for variant in (task, _IMDB_LINES) if name == "imdb" else (task,):
            for place in (Path(folder) / part for part in variant.folders):
                if place.is_dir():
                    fields = _fields(variant, place)
                    if not isinstance(fields, str):
                        return Found(variant.config, fields)
                    lacks = fields
    return lacks


def find_all(
    names: Sequence[str], data: str
) -> tuple[dict[str, Found], dict[str, str]]:
    """Finds the data of tasks, and why the others are missing.

    Args:
      data: Folders, between commas.

    Raises:
      UserError: A folder does not exist.
    """
    folders = list(filter(None, data.split(",")))
    for folder in folders:
        if not folder.startswith(BY_NAME) and not Path(folder).is_dir():
            raise UserError(f"--data={folder}: no such folder")
    every = {name: find(name, folders) for name in names}
    found = {name: data for name, data in every.items() if isinstance(data, Found)}
    missing = {name: why for name, why in every.items() if isinstance(why, str)}
    return found, missing


def _fields(task: Task, place: Path) -> tuple[str, ...] | str:
    for pattern in task.inside:
        if not any(place.glob(pattern)):
            return f"{place} has no {pattern.removesuffix('*')}"
    fields = []
    for field, patterns in task.fields.items():
        if not patterns:
            fields.append(f"{field}={place}")
            continue
        found = next((hit for p in patterns if (hit := sorted(place.glob(p)))), [])
        if len(found) > 1:
            return f"{place} has {found[0].name} and {found[1].name}; keep one there"
        if found:
            fields.append(f"{field}={found[0]}")
        elif field != "task.test_file":
            return f"{place} has no {' or '.join(patterns)}"
    return tuple(fields)
