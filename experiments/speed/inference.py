"""How fast texts of mixed lengths are classified and encoded, beside other libraries.

    python -m experiments.speed.inference --vocabulary=vocab.txt \
        --texts reviews.jsonl [...] [--layers=4] [--hidden=256] [--output=FILE.json]

The texts are the `text` fields of JSON lines (`text_b`, where there is one, is joined),
in a random order. All sides have the same random weights and the same batch size, but
`encode`, which has its own; texts are cut at 512 tokens; compiling and a first round
are not counted. Each library has a process of its own, and their sides take turns; a
figure is the median of the turns.
`predict` is beside `transformers`' pipeline `text-classification`, with the texts as
they come and sorted by the caller, and beside ONNX Runtime (where it and onnx are
installed, on a processor, in float32) on the exported model, sorted by the caller, and
KerasHub's classifier (likewise, on any device), whose weights are its own; `encode`, in
float32, beside the model itself, called by a caller who sorts. `one text`: a text of
middling length alone. `share` is the model's FLOPs, of the texts' own tokens, of the
peak that a matrix product in the dtype reaches here, by JAX or by torch; `predict`
computes the last layer at [CLS] alone, which its share does not show.
`--model=roberta` and `--model=modernbert`, without the last two, take a vocabulary of
byte-level BPE."""

import argparse
import contextlib
import importlib.util
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig, encoder_flops
from bert_jax.runtime.terminal import table
from experiments.lib import command_line, ending, torch_side
from experiments.speed import inference_sides, measuring, our_step, sides
from experiments.speed.inference_sides import LIMIT, ONE
from experiments.speed.sides import PEAKS
from experiments.speed.train_sides import DTYPES, MODELS

MODULE = "experiments.speed.inference"
PACKAGES = ("jax", "torch", "transformers", "onnxruntime", "keras_hub")


def make_model(args: argparse.Namespace, folder: Path) -> BertConfig:
    """Writes a classifier with random weights, and a tokenizer; gives its config."""
    tokenizer = _tokenizer(args)
    torch.manual_seed(0)
    config = our_step.sized_config(f"{args.layers}/{args.hidden}", LIMIT, 1, args.model)
    config.model.vocab_size = len(tokenizer)
    config.model.max_position_embeddings = LIMIT
    config.model.initializer_range = 0.05  # answers that differ from text to text
    if "global_rope_theta" in config.model:  # as released
        config.model.global_rope_theta = 160_000.0
    theirs = torch_side.config_of(config.model)
    theirs.pad_token_id = tokenizer.pad_token_id
    kind: Any = transformers.AutoModelForSequenceClassification
    model = kind.from_config(theirs)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if has("onnxruntime") and args.model == "bert":
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
    return BertConfig.create(config.model, 0)


def _tokenizer(args: argparse.Namespace) -> Any:
    library: Any = transformers  # its types lack the classes
    if args.model == "bert":
        return library.BertTokenizerFast(args.vocabulary, model_max_length=LIMIT)
    own = tokenization.load(args.vocabulary)
    special = tokenization.special_ids(own)._asdict()
    return library.PreTrainedTokenizerFast(
        tokenizer_object=own,
        model_max_length=LIMIT,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{name}_token": own.id_to_token(index) for name, index in special.items()},
    )


def has(library: str) -> bool:
    """Whether it is installed, with what torch exports for ONNX Runtime with; of ONNX
    Runtime, whose usual package has no GPU, also whether there is none."""
    needed = (library, "onnx") if library == "onnxruntime" else (library,)
    if library == "onnxruntime" and torch_side.device() != "cpu":
        return False
    return all(importlib.util.find_spec(name) for name in needed)


def read_texts(args: argparse.Namespace) -> list[str]:
    """The texts, cut where the model would be at its limit.

    Raises:
      UserError: a number is impossible, or a line is not an object with a text.
    """
    command_line.check_counts(args, "layers", "hidden", "rows", "batch", "rounds")
    if args.hidden % 64:
        raise UserError(f"--hidden={args.hidden}: must be a multiple of 64")
    texts = []
    for name in args.texts:
        lines = Path(name).read_text(encoding="utf-8").rstrip("\n").split("\n")
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                parts = [row["text"], *([row["text_b"]] if "text_b" in row else [])]
                texts.append(" ".join(parts))
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f'{name}, line {number}: {{"text": TEXT}} is required'
                ) from error
    random.Random(0).shuffle(texts)
    tokenizer = tokenization.load(args.vocabulary)
    cut = []
    for text in texts[: args.rows]:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        cut.append(text[: offsets[: LIMIT - 2][-1][1] if offsets else 0])
    return cut


def measure(args: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """The figures of all sides."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        config = make_model(args, Path(name))
        file = Path(name) / "texts.json"
        file.write_text(json.dumps(texts), encoding="utf-8")
        case = {
            "folder": name,
            "texts": str(file),
            "batch": args.batch,
            "model": args.model,
            "size": f"{args.layers}/{args.hidden}",
            "dtype": args.dtype,
            "peak": [args.peak_size, 256, 0.5],
        }
        libraries = [
            library
            for library in inference_sides.LIBRARIES
            if has(library) and (args.model == "bert" or library in ("jax", "torch"))
        ]
        opened = [
            stack.enter_context(
                sides.Process(inference_sides.MODULE, {**case, "library": library})
            )
            for library in libraries
        ]
        answers = [
            process.ask(process.sides[0])["value"]
            for library, process in zip(libraries, opened, strict=True)
            if library != "keras_hub"  # other weights
        ]
        turns = {k: turn for process in opened for k, turn in process.turns().items()}
        found = measuring.alternate(turns, args.rounds, args.turn)
        peaks = [process.ask(PEAKS)["value"] for process in opened[:2]]
    same = [sum(map(str.__eq__, answers[0], other)) for other in answers[1:]]
    return {
        "model": f"{args.model}, {args.layers} layers of {args.hidden}, {args.dtype}",
        "device": opened[0].found["device"],
        "texts": len(texts),
        "batch": args.batch,
        "same_label": min(same) / len(texts),
        "flops": flops_of(args, config, texts),
        "peak": measuring.higher(*peaks)[args.dtype],
        "sides": found,
    }


def flops_of(
    args: argparse.Namespace, config: BertConfig, texts: list[str]
) -> dict[str, float]:
    """Of one round: of all texts, and (ONE) of the middling one; without padding."""
    tokenizer = tokenization.load(args.vocabulary)

    def answer(text: str) -> float:
        tokens = len(tokenizer.encode(text, add_special_tokens=False).ids) + 2
        return encoder_flops(config, tokens) / 3  # of the three, the forward pass

    return {"": sum(map(answer, texts)), ONE: answer(inference_sides.middling(texts))}


def rows(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """The lines of the table."""
    found: list[tuple[str, ...]] = []
    for name, side in figures["sides"].items():
        alone = name.endswith(ONE)
        ours = "encode" if name.startswith(("encode", "model")) else "predict"
        own = figures["sides"][f"{ours}{ONE if alone else ''}"]
        count = 1 if alone else figures["texts"]
        ratio = measuring.ratio(side, own)["median"]
        rate = figures["flops"][ONE if alone else ""] / side["median"]
        found.append(
            (
                name,
                f"{count / side['median']:.1f}",
                f"{1e3 * side['median']:.2f}" if alone else "",
                f"{rate / figures['peak']:.0%}",
                "" if side is own else f"{ratio:.2f}",
            )
        )
    return found


HEADER = ("side", "texts/s", "milliseconds", "share", "ours / it")


def parser_of(module: str, about: str | None, rows: int) -> command_line.Parser:
    """With the options of the model and of the texts, of which there are `rows`."""
    parser = command_line.Parser(module, about)
    parser.add_argument(
        "--vocabulary", required=True, help="vocab.txt; else tokenizer.json"
    )
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--rows", type=int, default=rows, help="texts")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--output", default="", help="JSON")
    return parser


@ending.command
def main(arguments: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = parser_of(MODULE, __doc__, rows=256)
    parser.add_argument("--model", default="bert", choices=MODELS)
    parser.add_argument("--dtype", default=DTYPES[0], choices=DTYPES)
    parser.add_argument("--peak_size", type=int, default=2048, help="of the products")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=2.0, help="least seconds of one")
    args = parser.parse_args(arguments)
    facts = measuring.begin(MODULE, arguments, PACKAGES)
    texts = read_texts(args)
    figures = measure(args, texts)
    print(
        f"{figures['model']}, {figures['device']}, {len(texts)} texts, batches of "
        f"{args.batch}: the same label for at least {figures['same_label']:.1%}; peak "
        f"{figures['peak'] / 1e9:,.0f} GFLOP/s\n"
    )
    print(table(rows(figures), HEADER))
    measuring.write(args.output, {**facts, **figures})
    return 0


if __name__ == "__main__":
    ending.start(main)
