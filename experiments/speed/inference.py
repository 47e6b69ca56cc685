"""The speed of answering texts of mixed lengths, compared with other libraries.

    python -m experiments.speed.inference --vocabulary=vocab.txt \
        --texts reviews.jsonl [--family=bert] [--layers=4] [--hidden=256] \
        [--output=FILE.json]

The texts are the column `text` of tables (.jsonl, .csv, .tsv), in a random order. All
sides have the same random weights and the same batch size. Texts are cut at 512 tokens.
Compiling and a first round are not counted. Each library has a separate process, and
their sides take turns. A figure is the median of the turns.
`predict` is compared with `transformers`' pipeline `text-classification`, with the
texts as they come and sorted by the caller, and with ONNX Runtime (where it and onnx
are installed, on a processor, in float32) on the exported model, sorted by the
caller. `one text` is a text of middling length alone. Vectors of texts are compared by
`experiments.claims.released_vectors`.
"""

import argparse
import contextlib
import importlib.util
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax import tokenization
from bert_jax.commands import command_line, runner
from bert_jax.data.texts import read_texts
from bert_jax.data.workers import available_cores
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.registry import ATTENTIONS
from bert_jax.runtime.terminal import format_table
from experiments.lib import programs
from experiments.speed import our_step, sides
from experiments.speed.train_step import DTYPES

MODULE = "experiments.speed.inference"
PACKAGES = ("jax", "torch", "transformers", "onnxruntime")
LIMIT = 512  # tokens
TEXTS = "texts.json"
ONE = ", one text"  # ends the name of a side that takes one text at a time
SORTED = ", sorted by its caller"
PREDICT = "predict"

Texts = list[str]
Answer = Callable[[Texts], list[str]]


def make_model(
    args: argparse.Namespace, texts: Texts, folder: Path, *, exports: bool
) -> None:
    """Writes a classifier with random weights, its tokenizer and the texts.

    Args:
      exports: Whether to write the classifier for ONNX Runtime too.
    """
    import torch
    import transformers

    from experiments.speed import torch_step

    library: Any = transformers  # its types lack some classes
    tokens = Path(args.vocabulary).read_text(encoding="utf-8").splitlines()
    tokens.remove("[PAD]")  # the family says where it stands
    tokens.insert(programs.padding_id(FAMILIES[args.family]), "[PAD]")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(tokens), encoding="utf-8")
    tokenizer = library.BertTokenizerFast(str(vocabulary), model_max_length=LIMIT)
    torch.manual_seed(0)
    size = f"{args.layers}/{args.hidden}"
    config = our_step.sized_config(size, LIMIT, 1, "classification", args.family)
    config.model.vocab_size = len(tokenizer)
    config.model.initializer_range = 0.05  # answers that differ from text to text
    theirs = torch_step.config_of(config.model)
    model = library.AutoModelForSequenceClassification.from_config(theirs)
    (folder / TEXTS).write_text(json.dumps(texts), encoding="utf-8")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if exports:
        inputs = dict(tokenizer(["one", "two of them"], padding=True))
        names = ["input_ids", "attention_mask", "token_type_ids"]  # the model's order
        torch.onnx.export(
            model.eval(),
            tuple(torch.tensor(inputs[name]) for name in names),
            str(folder / "model.onnx"),
            input_names=names,
            dynamic_axes={name: {0: "rows", 1: "length"} for name in names},
            dynamo=False,
        )


def list_libraries(args: argparse.Namespace) -> list[str]:
    """Returns the measured libraries.

    ONNX Runtime, whose usual package has no GPU, is measured with a BERT in float32 and
    without one.
    """
    import torch

    has_both = all(map(importlib.util.find_spec, ("onnxruntime", "onnx")))
    usable = has_both and args.dtype == "float32" and not torch.cuda.is_available()
    usable = usable and args.family == "bert"
    return ["jax", "torch", *["onnxruntime"] * usable]


def load_texts(args: argparse.Namespace) -> Texts:
    """Reads the texts of --texts, in a random order, cut at LIMIT tokens.

    Raises:
      UserError: An option or a record is wrong. The error names file and line.
    """
    command_line.check_counts(args, "layers", "rows", "batch", "rounds")
    if args.hidden < 64 or args.hidden % 64:
        raise UserError(f"--hidden={args.hidden}: must be a multiple of 64")
    read = (read_texts(name, labelled=False) for name in args.texts)
    texts = [row["text"] for rows in read for row in rows]
    random.Random(0).shuffle(texts)
    tokenizer = tokenization.load(args.vocabulary)
    cut = []
    for text in texts[: args.rows]:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        cut.append(text[: offsets[: LIMIT - 2][-1][1] if offsets else 0])
    return cut


def _ours(case: dict[str, Any], batch: int, attention: str) -> Answer:
    """Returns answers by `--mode=predict` without its files."""
    from bert_jax.config import configuration, files
    from bert_jax.data.tables import Record
    from bert_jax.runtime import environment, storage
    from bert_jax.training import inference, run_config, setup

    environment.keep_programs()
    fields = {"init_from": case["folder"], "predict.batch_size": batch}
    fields |= {"task.max_seq_length": LIMIT, "model.dtype": case["dtype"]}
    fields["model.attention"] = attention
    spec = f"finetune/text:model={case['family']}"
    given = configuration.override_and_check(files.load_file(spec), spec, fields)
    nowhere = storage.storage_path(str(Path(case["folder"], "run")))
    config = run_config.config_of(nowhere, given, fields, is_inference=True)
    task = setup.build_task(config, nowhere, from_data=False)
    answerer = inference.restore_answerer(task, nowhere)

    def predict(texts: Texts) -> list[str]:
        rows = [Record(f"row {n}", {"text": t}) for n, t in enumerate(texts)]
        every = answerer.stream(rows)
        return [answer["label"] for some in every for _, answer in some]

    return predict


def _jax_answers(case: dict[str, Any]) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    for attention in case["attentions"]:
        name = PREDICT if attention == "einsum" else f"{PREDICT}, {attention}"
        found[name] = _ours(case, case["batch"], attention)
        found[f"{name}{ONE}"] = _ours(case, 1, attention)
    return found


def _torch_answers(case: dict[str, Any]) -> dict[str, Answer]:
    """Returns answers by `transformers`, used as its documentation describes."""
    import torch
    import transformers

    from experiments.speed import torch_step

    torch_step.set_up()

    def pipeline(batch: int) -> Answer:
        call: Any = transformers.pipeline(
            "text-classification",
            case["folder"],
            device=torch_step.device_name(),
            batch_size=batch,
            dtype=getattr(torch, case["dtype"]),
        )
        return lambda texts: [row["label"] for row in call(texts, truncation=True)]

    many = pipeline(case["batch"])
    return {
        "pipeline": many,
        f"pipeline{SORTED}": sorted_by_length(many),
        f"pipeline{ONE}": pipeline(1),
    }


def _onnx_answers(case: dict[str, Any]) -> dict[str, Answer]:
    """Returns answers by ONNX Runtime with the exported classifier, on all cores."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cores()
    session = onnxruntime.InferenceSession(f"{case['folder']}/model.onnx", options)
    tokenizer = Tokenizer.from_file(f"{case['folder']}/tokenizer.json")
    tokenizer.enable_truncation(LIMIT)
    tokenizer.enable_padding()

    def classify(texts: Texts, size: int) -> Iterator[str]:
        names = ("input_ids", "attention_mask", "token_type_ids")
        for first in range(0, len(texts), size):
            encodings = tokenizer.encode_batch(texts[first : first + size])
            rows = [(e.ids, e.attention_mask, e.type_ids) for e in encodings]
            columns = np.array(rows, np.int64).transpose(1, 0, 2)
            found = session.run(None, dict(zip(names, columns, strict=True)))
            yield from (f"LABEL_{index}" for index in found[0].argmax(-1))

    name, size = "ONNX Runtime", case["batch"]
    return {
        f"{name}{SORTED}": sorted_by_length(lambda texts: list(classify(texts, size))),
        f"{name}{ONE}": lambda texts: list(classify(texts, 1)),
    }


def sorted_by_length(answer: Answer) -> Answer:
    """Returns an answer that takes the texts in the order of their lengths."""

    def ordered(texts: Texts) -> list[str]:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        answers = answer([texts[index] for index in order])
        found = dict(zip(order, answers, strict=True))
        return [found[index] for index in range(len(texts))]

    return ordered


_SIDES = {"jax": _jax_answers, "torch": _torch_answers, "onnxruntime": _onnx_answers}


def prepare_sides(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the sides of the case's library in this process.

    Each answers all texts, or one of middle length, once before.
    """
    texts = json.loads(Path(case["folder"], TEXTS).read_text(encoding="utf-8"))
    middling = sorted(texts, key=len)[len(texts) // 2]

    def side(name: str, answer: Answer) -> Callable[[int], Any]:
        own = [middling] if name.endswith(ONE) else texts
        answer(own)
        return lambda times: [answer(own) for _ in range(times)][-1]

    answers = _SIDES[case["library"]](case)
    return {name: side(name, answer) for name, answer in answers.items()}, {}


def measure_libraries(
    args: argparse.Namespace, texts: Texts, chosen: Sequence[str]
) -> dict[str, Any]:
    """Measures the figures of all sides of some libraries, the first of them ours."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        make_model(args, texts, Path(folder), exports="onnxruntime" in chosen)
        names = ("family", "dtype", "attentions", "batch")
        case = {"folder": folder, **{name: getattr(args, name) for name in names}}
        opened = [
            stack.enter_context(sides.Process(MODULE, {**case, "library": library}))
            for library in chosen
        ]
        first, *others = (each.ask(each.sides[0])["value"] for each in opened)
        turns = {k: turn for each in opened for k, turn in each.turns().items()}
        found = sides.time_in_turns(turns, args.rounds, args.turn)
    every = [sum(map(str.__eq__, first, other)) for other in others]
    same = min(every, default=len(texts))
    return {"texts": len(texts), "same_label": same / len(texts), "sides": found}


HEADER = ("side", "texts/s", "milliseconds", "ours / it")


def table_rows(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the lines of the table."""
    found: list[tuple[str, ...]] = []
    for name, side in figures["sides"].items():
        alone = name.endswith(ONE)
        own = figures["sides"].get(f"{PREDICT}{ONE if alone else ''}", side)
        ratio = sides.times_as_fast(own, side)
        found.append(
            (
                name,
                f"{(1 if alone else figures['texts']) / side['median']:.1f}",
                f"{1e3 * side['median']:.2f}" if alone else "",
                "" if side is own else f"{ratio:.2f}",
            )
        )
    return found


@command_line.command
def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = command_line.Parser(MODULE, __doc__)
    parser.add_argument("--vocabulary", required=True, help="vocab.txt")
    parser.add_argument("--texts", nargs="+", required=True)
    our_step.add_family(parser)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--rows", type=int, default=256, help="texts")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dtype", default=DTYPES[0], choices=DTYPES)
    attentions = command_line.several(str, ATTENTIONS)
    parser.add_argument("--attentions", default="einsum", type=attentions, help="ours")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=2.0, help="least seconds of one")
    parser.add_argument("--output", type=Path, help="JSON")
    args = parser.parse_args(arguments)
    facts = sides.print_facts(MODULE, arguments, PACKAGES)
    texts = load_texts(args)
    figures = measure_libraries(args, texts, list_libraries(args))
    print(
        f"{args.layers} layers of {args.hidden}, {args.dtype}, {len(texts)} texts, "
        f"batches of {args.batch}: the same label for at least "
        f"{figures['same_label']:.1%}\n\n{format_table(table_rows(figures), HEADER)}"
    )
    if args.output:
        runner.write_json(args.output, {**facts, **figures})
    return 0


if __name__ == "__main__":
    command_line.start(main)
