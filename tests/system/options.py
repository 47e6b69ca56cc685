"""Options against families and tasks: each cell trains, or is refused in one line.

    python -m tests.system.options [--columns=text/gpt] [--only=task.] [--show]

A column is a task of a family: every family fine-tuned on texts and pre-trained, and
every task of BERT. A row is an option. A cell takes two steps of a model of two layers,
after the checks of a real run. It fails if

- it ends in another error than one line, or in any error after the first step,
- a loss or a gradient is not finite,
- the option changes nothing, where it should (losses, parameters, or answers to dev),
  or changes the losses, where it should not.

The output is a line for each cell that fails, and the numbers of cells that work, are
refused and fail. The exit status is 1 if one fails. `--show` prints all cells, those
that work with a digest of all bits of their losses, parameters and answers. The same
command before and after a change of the code shows with `diff` what it changed.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.convert import export
from bert_jax.convert.layout import Weights
from bert_jax.errors import UserError
from bert_jax.registry import FAMILIES
from bert_jax.training import inference, run, run_config, setup, sharding
from bert_jax.training.step import Step
from tests.families.encoders import ENCODERS, make_tokenizer
from tests.micro_data import NAMES, VOCABULARY, WORDS, squad, swag

TRAINED = ("bert", "roberta", "modernbert", "gpt")  # their vocabularies are
MODELS = (*TRAINED, *ENCODERS)
# Some are not in the vocabularies, but parts of them are.
TEXTS = [*WORDS, "foxes", "dogs", "seas"]

Fields = Mapping[str, Any]
FIELDS: Fields = {
    "model.hidden_size": 32,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 48,
    "model.max_position_embeddings": 32,
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "model.initializer_range": 0.2,
    "model.position_initializer": "normal",
    "optimizer.name": "bert_adam",
    "optimizer.schedule": "polynomial",
    "optimizer.learning_rate": 0.01,
    "optimizer.warmup_fraction": 0.0,
    "optimizer.warmup_steps": 0,
    "train.num_steps": 2,
    "train.batch_size": 8,
    "train.eval_every_epoch": False,
    "evaluate.batch_size": 8,
    "evaluate.splits": ("dev",),
    "tokenizer.vocab_file": "in/tokenizer.json",
    "corpus.data_dir": "data",
}
OF_MODEL: Mapping[str, Fields] = {
    "electra": {"model.embedding_size": 16},
    "albert": {"model.embedding_size": 16, "model.num_hidden_layers": 2},
    "deberta_v3": {"model.position_buckets": 8},
    "modernbert": {"model.local_attention": 4},
}
PRETRAINING: Fields = {
    "corpus.sources": ("sentences:in/corpus.txt",),
    "corpus.max_seq_length": 32,
    "corpus.dev_fraction": 0.2,
    "corpus.nsp": False,
    "corpus.packing": False,
    "corpus.full_sentences": False,
    "corpus.short_seq_prob": 0.1,
    "phase2.fraction": 0.0,
    "masking.max_predictions_per_seq": 6,
    "task.nsp_loss": True,
}
OF_TASK: Mapping[str, Fields] = {
    "text": {},
    "multilabel": {"task.kind": "multilabel", "task.text_b": "text_b"},
    "regression": {"task.kind": "regression"},
    "ner": {},
    "squad": {"task.doc_stride": 8, "task.max_query_length": 8},
    "swag": {},
    "embeddings": {"task.text_b": "text_b"},
    "scored": {"task.text_b": "text_b"},
}


class Column(NamedTuple):
    task: str
    model: str


COLUMNS = [
    *(Column("text", model) for model in MODELS),
    *(Column(task, "bert") for task in OF_TASK if task != "text"),
    *(Column("pretraining", model) for model in MODELS),
]
# What an option must change: nothing of the first step's losses and gradients, the
# steps, or only answers. "" is for what this script cannot see.
SAME, STEPS, ANSWERS, UNSEEN = "same", "steps", "answers", ""


EVERY = (*OF_TASK, "pretraining")  # not other families' pre-training


class Option(NamedTuple):
    fields: Fields
    changes: str
    beside: Fields = types.MappingProxyType({})  # also set where it is compared
    tasks: tuple[str, ...] = EVERY


_WEIGHTS = {"init_from": "weights", "tokenizer.vocab_file": ""}
_SHORT = {"task.max_seq_length": 8}
_PACKED = {"corpus.packing": True}
_CRF = {"task.crf": True}
_HELD = {"task.dev_file": "", "task.dev_fraction": 0.3}
_TAUGHT = {"task.teacher": "weights"}
_TEXT = ("text", "multilabel", "regression")
_VECTORS = ("embeddings", "scored")
_CORPUS = ("pretraining",)
OPTIONS = [
    # How a step is computed.
    Option({"train.micro_batches": 2}, SAME),
    Option({"train.seeds": 2}, SAME),
    Option({"model.scan_layers": True}, SAME),
    Option({"model.remat": "dots"}, SAME),
    Option({"model.dtype": "bfloat16"}, STEPS),
    Option({"model.attention": "fused"}, UNSEEN),
    Option({"model.epilogue": "fused"}, UNSEEN),
    # What learns, from where and how.
    Option({"model.hidden_act": "relu"}, STEPS),
    Option({"model.hidden_dropout_prob": 0.3}, STEPS),
    Option({"model.attention_probs_dropout_prob": 0.3}, STEPS),
    Option({"model.position_initializer": "sinusoidal"}, STEPS, tasks=(*EVERY,)),
    Option({"model.positions": "learnt"}, SAME),
    *(
        Option({"optimizer.name": name}, STEPS)
        for name in ("lamb", "muon", "stable_adamw", "openai_adam")
    ),
    Option({"optimizer.schedule": "warmup_stable_decay"}, UNSEEN),
    Option({"optimizer.frozen": ("bert/embeddings",)}, STEPS),
    Option({"optimizer.trainable": ("layer_0",)}, STEPS),
    Option({"init_layers": (0, 0)}, STEPS, _WEIGHTS),
    Option({"model.lora_rank": 2}, STEPS, _WEIGHTS),
    Option(
        {"model.lora_targets": ("intermediate",)},
        STEPS,
        {**_WEIGHTS, "model.lora_rank": 2},
    ),
    Option({"tokenizer.add": ("foxes",)}, STEPS, _WEIGHTS),
    Option(
        {"tokenizer.added_rows": "random"},
        STEPS,
        {**_WEIGHTS, "tokenizer.add": ("foxes",)},
    ),
    Option({"train.early_stop": 1}, UNSEEN),
    Option({"evaluate.checkpoint": "best"}, UNSEEN),
    # A teacher.
    Option(_TAUGHT, STEPS),
    *(
        Option({f"task.teacher_{name}": 0.7}, STEPS, _TAUGHT)
        for name in ("temperature", "cosine", "hidden", "attention")
    ),
    # Rows of a task.
    Option({"task.pad_to_max": True}, SAME, tasks=(*OF_TASK,)),
    Option({"task.bilstm": True}, STEPS, tasks=(*OF_TASK,)),
    Option({"task.max_seq_length": 6}, STEPS, tasks=(*OF_TASK,)),
    Option({"task.texts_per_row": 4}, SAME, tasks=(*OF_TASK,)),
    Option({"task.windows": 4}, STEPS, _SHORT | {"task.window_overlap": 2}, _TEXT),
    Option(
        {"task.window_logits": "max"},
        STEPS,
        _SHORT | {"task.window_overlap": 2, "task.windows": 4},
        _TEXT,
    ),
    Option({"task.truncation": "tail"}, STEPS, _SHORT, _TEXT),
    Option({"task.truncation": "head_tail"}, STEPS, _SHORT, _TEXT),
    Option({"task.label_smoothing": 0.2}, STEPS, tasks=_TEXT),
    Option({"task.class_weights": ("balanced",)}, STEPS, tasks=_TEXT),
    Option({"task.calibration": "temperature"}, ANSWERS, tasks=_TEXT),
    Option(
        {"task.calibration": "thresholds", "task.min_precision": 0.95},
        ANSWERS,
        tasks=_TEXT,
    ),
    Option(
        {"task.positive_label": "bad"},
        UNSEEN,
        {"task.calibration": "thresholds"},
        _TEXT,
    ),
    Option(_HELD, STEPS, tasks=(*OF_TASK,)),
    Option({"task.group": "topic"}, STEPS, _HELD, _TEXT),
    Option({"task.label_names": ("no", "yes")}, ANSWERS, tasks=_TEXT),
    Option({"task.crf": True}, STEPS, tasks=("ner",)),
    Option({"task.document_context": True}, STEPS, tasks=("ner",)),
    Option({"task.document_context": True}, STEPS, _CRF, ("ner",)),
    Option({"task.scheme": "none"}, ANSWERS, tasks=("ner",)),
    Option({"task.tag_scheme": "none"}, UNSEEN, _CRF, ("ner",)),
    Option({"task.null_answers": True}, STEPS, tasks=("squad",)),
    Option(
        {"task.doc_stride": 3},
        STEPS,
        _SHORT | {"task.max_seq_length": 16, "task.max_query_length": 4},
        tasks=("squad",),
    ),
    Option({"task.max_query_length": 2}, STEPS, tasks=("squad",)),
    Option({"task.max_answer_length": 1}, ANSWERS, tasks=("squad",)),
    Option({"task.pooling": "cls"}, STEPS, tasks=_VECTORS),
    Option({"task.pooling": "mean"}, STEPS, tasks=_VECTORS),
    Option({"task.normalized": False}, ANSWERS, tasks=_VECTORS),
    Option({"task.dimensions": (4, 32)}, STEPS, tasks=_VECTORS),
    Option({"task.loss": "squared_error"}, STEPS, tasks=_VECTORS),
    Option({"task.temperature": 0.5}, STEPS, tasks=_VECTORS),
    Option({"task.max_score": 2.0}, STEPS, {"task.loss": "squared_error"}, _VECTORS),
    Option({"task.dense": ("16:tanh",)}, STEPS, tasks=_VECTORS),
    Option({"task.prompt": "the "}, STEPS, tasks=_VECTORS),
    Option({"task.lm_coef": 0.0}, STEPS, tasks=("text",)),
    Option({"task.both_orders": True}, STEPS, {"task.text_b": "text_b"}, ("text",)),
    Option({"model.classifier_pooling": "mean"}, STEPS, tasks=("text",)),
    # Rows of pre-training.
    Option({"corpus.nsp": True}, STEPS, tasks=_CORPUS),
    Option({"task.nsp_loss": False}, STEPS, {"corpus.nsp": True}, _CORPUS),
    Option({"task.objective": "ltr"}, STEPS, tasks=_CORPUS),
    Option({"task.objective": "replaced_tokens"}, STEPS, tasks=_CORPUS),
    Option({"corpus.full_sentences": True}, STEPS, tasks=_CORPUS),
    Option(_PACKED, STEPS, tasks=_CORPUS),
    Option({"corpus.packed_pairs": 2}, STEPS, _PACKED, _CORPUS),
    Option(
        {"corpus.shift_positions": True},
        STEPS,
        _PACKED | {"corpus.max_seq_length": 16},
        _CORPUS,
    ),
    Option({"corpus.short_seq_prob": 0.9}, STEPS, tasks=_CORPUS),
    Option(
        {"corpus.weights": (3.0, 1.0)},
        STEPS,
        {"corpus.sources": ("sentences:in/corpus.txt", "lines:in/corpus.txt")},
        _CORPUS,
    ),
    Option({"masking.whole_word": True}, STEPS, tasks=_CORPUS),
    Option({"masking.masked_lm_prob": 0.4}, STEPS, tasks=_CORPUS),
    Option({"masking.random_fraction": 0.2}, STEPS, tasks=_CORPUS),
    Option({"phase2.fraction": 0.5, "phase2.max_seq_length": 16}, STEPS, tasks=_CORPUS),
]


class Result(NamedTuple):
    """What two steps have left."""

    losses: list[dict[str, np.ndarray]]
    params: dict[tuple[str, ...], np.ndarray]
    answers: str

    def digest(self) -> str:
        """Returns a digest of all bits."""
        found = hashlib.sha256(self.answers.encode())
        trees = [*enumerate(self.losses), ("params", self.params)]
        for where, tree in trees:
            for name, value in sorted(tree.items()):
                found.update(f"{where} {name}".encode() + np.asarray(value).tobytes())
        return found.hexdigest()[:16]


class Cell(NamedTuple):
    column: Column
    name: str
    outcome: str  # works, refused or fails
    reason: str  # or, where it works, the digest of its result


def rows_of(task: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(24):
        one, two = (" ".join(rng.choices(TEXTS, k=rng.randint(9, 14))) for _ in "ab")
        row: dict[str, Any] = {"text": one, "text_b": two, "topic": number // 3}
        label = "good" if number % 3 else "bad"
        row["label"] = {"multilabel": [label, "long"][: 1 + number % 2]}.get(
            task, label
        )
        if task in ("regression", "scored"):
            row["label"] = row["score"] = number / 24
        if task == "embeddings":  # pairs alone
            del row["label"]
        yield row


def write_inputs(column: Column, folder: Path) -> Fields:
    """Writes `in/`: a vocabulary, the task's data, and a config without any option.

    Returns:
      Fields of the config.
    """
    rng, task = random.Random(column.task), column.task
    files = {"tokenizer.json": tokenizer_of(column.model).to_str()}
    ends = {"squad": "json", "swag": "csv", "ner": "conll"}
    fields = {**FIELDS, **OF_MODEL.get(column.model, {})}
    extends = f"finetune/{task}:recipe=tiny,model={column.model}"
    if task == "pretraining":
        fields |= PRETRAINING
        fields["task.objective"] = "ltr" if column.model == "gpt" else "mlm"
        words = [*TEXTS, *NAMES]
        lines = (" ".join(rng.choices(words, k=rng.randint(3, 8))) for _ in range(300))
        text = "".join(f"{x}\n{'' if n % 5 else chr(10)}" for n, x in enumerate(lines))
        files["corpus.txt"] = text
        own = Path(configuration.__file__).parents[2] / "configs" / f"{column.model}.py"
        extends = f"{column.model}:size=tiny" if own.exists() else "tiny:recipe=plain"
    else:
        fields |= {"task.max_seq_length": 32, **OF_TASK[task]}
        end = ends.get(task, "jsonl")
        fields |= {f"task.{x}_file": f"in/{x}.{end}" for x in ("train", "dev")}
        if task in ("squad", "swag"):
            make = squad("2.0") if task == "squad" else swag
            files |= make(rng).files
        for split in ("train", "dev"):
            rows = rows_of(task, rng)
            files.setdefault(
                f"{split}.{end}", "".join(json.dumps(x) + "\n" for x in rows)
            )
        if task == "ner":
            files |= {f"{split}.conll": sentences(rng) for split in ("train", "dev")}
        kind = {"multilabel": "text", "regression": "text", "scored": "embeddings"}
        extends = extends.replace(task, kind.get(task, task), 1)
    for name, content in files.items():
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / name).write_text(content)
    sets = "pass"
    if extends.startswith("tiny:") and column.model != "bert":
        sets = f"config.unlock()\n    recipes.set_family(config, {column.model!r})"
    (folder / "in" / "plain.py").write_text(
        f"from bert_jax.config import recipes\n\nextends = {extends!r}\n\n"
        f"def get_config(config):\n    {sets}\n"
        f"    config.update_from_flattened_dict({fields!r})\n    return config\n"
    )
    return fields


def sentences(rng: random.Random) -> str:
    """Returns documents of tagged words, as CoNLL has them."""
    blocks = []
    for number in range(24):
        if number % 4 == 0:
            blocks.append("-DOCSTART- O")
        words = [*rng.choices(WORDS, k=rng.randint(2, 4)), *rng.choices(NAMES, k=2)]
        tags = ["O"] * (len(words) - 2) + ["B-PER", "I-PER"]
        blocks.append("\n".join(map(" ".join, zip(words, tags, strict=True))))
    return "\n\n".join(blocks) + "\n"


def tokenizer_of(model: str) -> Tokenizer:
    if model == "bert":
        return tokenization.build_tokenizer(VOCABULARY.split(), lowercase=True)
    if model not in TRAINED:
        return make_tokenizer(model)
    vocabulary = FAMILIES[model].vocabulary
    size = {"gpt": 80}.get(model, 300)
    return vocabulary.train([*TEXTS, *NAMES] * 2, size, lowercase=True)


def take_steps(fields: Fields, *, answered: bool) -> Result:
    """Takes two steps as a run does, in the working directory, and perhaps answers dev.

    Raises:
      UserError: Before the first step.
      RuntimeError: A UserError later, or a number that is not finite.
    """
    flags = [f"--config.{name}={value!r}" for name, value in fields.items()]
    flags = [flag.replace("='", "=").removesuffix("'") for flag in flags]
    folder = Path("run")
    config = configuration.load_config("in/plain.py", flags)
    config = run_config.config_of(folder, config, fields, is_inference=False)
    task = setup.build_task(config, folder, from_data=True)
    mesh = sharding.make_mesh(task.config, devices=jax.devices()[:1])
    base, start = setup.read_start(task, mesh)
    step = Step(task, mesh, base)
    task.training_data()
    run.require_dev(task)
    inference.require_score(task, mesh)
    state = step.first_state(start[0] if start else None)
    batches, losses = step.seeds.batches(task, 0, slice(None)), []
    try:
        compiled: dict[Any, Any] = {}
        for number in range(2):
            phase = task.phase_at(number)
            rows = next(batches)
            placed = sharding.place_batch(
                rows, mesh, phase.batch_size, step.seeds.count
            )
            shapes = str(jax.tree.map(np.shape, placed))
            if shapes not in compiled:
                traced = step.trace(state, placed, phase.micro_batches)
                compiled[shapes] = traced.lower().compile()
            given = step.seeds.array, np.float32(0.01), step.constants
            state, metrics = compiled[shapes](state, placed, *given)
            losses.append(jax.device_get(metrics))
        evaluator = inference.Evaluator(
            task, step.seeds, mesh, model_params=step.model_params
        )
        answers = ""
        if answered:
            params = step.model_params(step.seeds.split(state.params)[0], 2)
            outputs = evaluator.fetch(params, "dev", 2)
            found = task.results("dev", outputs, learns=True)
            shutil.rmtree("answers", ignore_errors=True)
            found.write(Path("answers"))
            answers = f"{found.scores} {outputs} " + "".join(
                path.read_text() for path in sorted(Path("answers").glob("dev*"))
            )
    except UserError as error:
        raise RuntimeError(f"refused after the first step: {error}") from error
    if not all(np.isfinite(x).all() for one in losses for x in one.values()):
        raise RuntimeError(f"not finite: {losses}")
    params = flatten_dict(jax.device_get(state.params))
    return Result(losses, params, answers)


def write_weights(column: Column) -> None:
    """Writes `weights`, an export of a model of the column before its first step."""
    config = configuration.load_config("in/plain.py", [])
    task = setup.build_task(config, Path("run"), from_data=True)
    params = unflatten_dict(task.initial_params.draw(jax.random.key(7)))
    sizes, layout = task.model_config, FAMILIES[column.model].layout
    kinds = {"multilabel": "multi_label_classification", "regression": "regression"}
    weights = Weights(
        sizes,
        jax.device_get(params),
        layout.name_of([name for name in params if name != "bert"], sizes.causal),
        labels=tuple(getattr(task, "labels", ())),
        problem_type=kinds.get(column.task),
    )
    export.export_folder(weights, task.tokenizer, Path("weights"), {})


def difference(option: Option, plain: Result, found: Result) -> str:
    """Returns what is wrong with what an option changes, or ""."""
    first, other = plain.losses[0], found.losses[0]
    if option.changes == SAME:
        for name in ("loss", "grad_norm"):
            one, two = (np.ravel(x[name])[0] for x in (first, other))
            if abs(one - two) > 1e-3 * abs(one):
                return f"{name} is {two}, and {one} without it"
    changed = plain.params.keys() != found.params.keys() or any(
        plain.params[k].shape != found.params[k].shape
        or np.abs(plain.params[k] - found.params[k]).max() > 1e-6
        for k in plain.params
    )
    if option.changes == STEPS and not changed:
        return "it changes nothing"
    if option.changes == ANSWERS and (changed or plain.answers == found.answers):
        return "it changes parameters" if changed else "it changes no answer"
    return ""


def fill(column: Column, only: str = "") -> Iterator[Cell]:
    """Yields the cells of a column. Writes into the working directory."""
    fields = write_inputs(column, Path())
    seen: dict[str, Result | Exception] = {}

    def result(fields: Fields, answered: bool) -> Result | Exception:
        key = f"{sorted(fields.items())} {answered}"
        if key not in seen:
            try:
                if "weights" in fields.values() and not Path("weights").exists():
                    write_weights(column)
                seen[key] = take_steps(fields, answered=answered)
            except Exception as error:
                seen[key] = error
        return seen[key]

    alone, name = result({}, False), "without any option"
    if isinstance(alone, Result):
        yield Cell(column, name, "works", alone.digest())
    else:
        yield Cell(column, name, "fails", repr(alone))
    for option in OPTIONS:
        name = " ".join(f"{k}={v}" for k, v in option.fields.items())
        if option.beside:
            name += f" (with {' '.join(f'{k}={v}' for k, v in option.beside.items())})"
        of_any = option.tasks is EVERY and column in COLUMNS[-len(MODELS) + 1 :]
        if column.task not in option.tasks or of_any or not name.startswith(only):
            continue
        # A GPT masks nothing, whatever the fractions are.
        ignored = column.model == "gpt" and re.match("masking.*(fraction|prob)", name)
        if option.fields.items() <= fields.items() or ignored:
            continue
        answered = any(x.startswith("task.") for x in option.fields)
        answered &= column.task != "pretraining"
        plain = result(option.beside, answered)
        if isinstance(plain, UserError):
            plain = result({}, answered)
        found = result({**option.beside, **option.fields}, answered)
        if isinstance(found, UserError):
            one_line = "\n" not in str(found)
            yield Cell(column, name, "refused" if one_line else "fails", str(found))
        elif isinstance(found, Exception):
            shown = f"{type(found).__name__}: {found}"
            ours = [
                x
                for x in traceback.extract_tb(found.__traceback__)
                if "bert_jax" in x.filename
            ]
            where = ours[-1] if ours else traceback.extract_tb(found.__traceback__)[-1]
            at = f"{Path(where.filename).name}:{where.lineno}"
            yield Cell(column, name, "fails", f"{shown:.300} ({at})")
        elif isinstance(plain, Exception):
            yield Cell(column, name, "fails", f"without it: {plain!r:.300}")
        elif wrong := difference(option, plain, found):
            yield Cell(column, name, "fails", wrong)
        else:
            yield Cell(column, name, "works", found.digest())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="start of an option")
    parser.add_argument("--columns", default="", help="text in TASK/MODEL")
    parser.add_argument("--show", action="store_true", help="print every cell")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for column in COLUMNS:
        title, start = "/".join(column), time.monotonic()
        if options.columns not in title:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for cell in fill(column, options.only):
                counts[cell.outcome] += 1
                if options.show or cell.outcome == "fails":
                    print(title, cell.name, cell.outcome, cell.reason, sep="  ")
                    sys.stdout.flush()
        print(f"{title}: {time.monotonic() - start:.0f} s", flush=True)
    print(", ".join(f"{counts[x]} {x}" for x in ("works", "refused", "fails")))
    sys.exit(counts["fails"] > 0)


if __name__ == "__main__":
    main()
