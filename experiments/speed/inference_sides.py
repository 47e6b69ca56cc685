"""The process of one library for `inference`: its ways of answering the texts."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.lib import report
from experiments.speed import measuring, our_step
from experiments.speed.sides import PEAKS

MODULE = "experiments.speed.inference_sides"
LIMIT = 512  # tokens
ONE = ", one text"  # ends the name of a side that takes one text at a time
SORTED = ", sorted by its caller"

Texts = list[str]
Answer = Callable[[Texts], Any]


class Ours:
    """`--mode=predict` without its files, and `encode`."""

    def __init__(
        self,
        folder: Path,
        batch: int,
        model: str,
        dtype: str,
        attention: str = "einsum",
    ):
        import bert_jax
        from bert_jax.config import configuration
        from bert_jax.runtime import compilation_cache, storage
        from bert_jax.training import run_config, setup
        from bert_jax.training.inference import async_predict, batch_size

        compilation_cache.keep()
        fields = {"init_from": folder, "predict.batch_size": batch}
        fields |= {"task.max_seq_length": LIMIT, "model.dtype": dtype}
        fields["model.attention"] = attention
        overrides = [f"--config.{name}={value}" for name, value in fields.items()]
        file = measuring.ROOT / "configs" / "finetune" / "text.py"
        given = configuration.load(f"{file}:model={model}", overrides)
        nowhere = storage.path(str(folder / "run"))
        config = run_config.config_of(nowhere, given, overrides, asks=True)
        task = setup.build_task(config, nowhere, from_data=False)
        with setup.restored_params(task, nowhere, task.unused(predicts=True)) as found:
            self._predictor = task.predictor(found.missing)
            self._size = batch_size(found.mesh, batch, task.model_config.hidden_size)
            of = (self._predictor.step, found.params, found.mesh, self._size)
            self._submit = async_predict(*of)
        self._bert = bert_jax.load(folder)

    def predict(self, texts: Texts) -> list[str]:
        from bert_jax.tasks import streaming

        lines = [(f"row {n}", json.dumps({"text": t})) for n, t in enumerate(texts)]
        found = streaming.answered(lines, self._predictor, self._submit, self._size)
        return [answer["label"] for some in found for _, answer in some]

    def encode(self, texts: Texts) -> None:
        import jax

        jax.block_until_ready(self._bert.encode(texts)["hidden_states"])


def our_sides(case: dict[str, Any]) -> dict[str, Answer]:
    many, one = (
        Ours(Path(case["folder"]), batch, case["model"], case["dtype"])
        for batch in (case["batch"], 1)
    )
    found: dict[str, Answer] = {"predict": many.predict}
    if case["dtype"] == "float32":  # as the weights are
        found["encode"] = many.encode
    return {**found, f"predict{ONE}": one.predict}


class Theirs:
    """`transformers`, as its documentation says to use it."""

    def __init__(self, folder: Path, batch: int, dtype: str):
        import torch
        import transformers

        from experiments.lib import torch_side

        torch.set_num_threads(report.cores())
        torch.set_float32_matmul_precision("high")  # TF32 on a GPU, as JAX does
        self._pipeline: Any = transformers.pipeline(
            "text-classification",
            str(folder),
            device=torch_side.device(),
            batch_size=batch,
            dtype=getattr(torch, dtype),
        )
        self._tokenizer: Any = self._pipeline.tokenizer
        self._model: Any = self._pipeline.model
        self._batch = batch

    def classify(self, texts: Texts) -> list[str]:
        return [row["label"] for row in self._pipeline(texts, truncation=True)]

    def encode_sorted(self, texts: Texts) -> None:
        by_length(texts, self._encode)

    def _encode(self, texts: Texts) -> list[Any]:
        import torch

        found: list[Any] = []
        with torch.inference_mode():
            for inputs in batches(texts, self._batch, self._tokenizer, "pt"):
                encoded = self._model.base_model(**inputs.to(self._model.device))
                found += encoded.get(
                    "pooler_output", encoded.last_hidden_state[:, 0]
                ).cpu()
        return found


def torch_sides(case: dict[str, Any]) -> dict[str, Answer]:
    folder, batch = Path(case["folder"]), case["batch"]
    many, one = (Theirs(folder, size, case["dtype"]) for size in (batch, 1))
    found: dict[str, Answer] = {
        "pipeline": many.classify,
        f"pipeline{SORTED}": lambda texts: by_length(texts, many.classify),
    }
    if case["dtype"] == "float32":  # beside `encode`
        found[f"model{SORTED}"] = many.encode_sorted
    return {**found, f"pipeline{ONE}": one.classify}


def onnx_session(folder: Path) -> Any:
    """The exported classifier in ONNX Runtime, on all cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = report.cores()
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options)


def onnx_sides(case: dict[str, Any]) -> dict[str, Answer]:
    """ONNX Runtime with the exported classifier."""
    session = onnx_session(Path(case["folder"]))
    return called("ONNX Runtime", case, lambda x: session.run(None, dict(x))[0])


def keras_sides(case: dict[str, Any]) -> dict[str, Answer]:
    """KerasHub's classifier of the same sizes, with weights of its own."""
    from experiments.speed import keras_step

    model = our_step.sized_config(case["size"], LIMIT, 1).model
    given = json.loads((Path(case["folder"]) / "config.json").read_bytes())
    model.vocab_size = given["vocab_size"]
    classifier = keras_step.classifier(model, case["dtype"])

    def logits(inputs: Mapping[str, Any]) -> Any:
        named = {
            "token_ids": inputs["input_ids"],
            "segment_ids": inputs["token_type_ids"],
            "padding_mask": inputs["attention_mask"],
        }
        return classifier.predict_on_batch(named)

    return called("KerasHub", case, logits)


def called(
    name: str, case: dict[str, Any], logits: Callable[[Mapping[str, Any]], Any]
) -> dict[str, Answer]:
    """The sides of a library whose caller sorts and cuts into batches; `logits` takes
    one, as arrays."""
    import transformers

    library: Any = transformers  # its types lack the class
    tokenizer = library.BertTokenizerFast.from_pretrained(case["folder"])

    def classify(texts: Texts, size: int) -> list[str]:
        found: list[str] = []
        for inputs in batches(texts, size, tokenizer, "np"):
            found += [f"LABEL_{index}" for index in logits(inputs).argmax(-1)]
        return found

    return {
        f"{name}{SORTED}": lambda x: by_length(x, lambda y: classify(y, case["batch"])),
        f"{name}{ONE}": lambda texts: classify(texts, 1),
    }


def batches(texts: Texts, size: int, tokenizer: Any, tensors: str) -> Any:
    """The texts in their order, each batch padded to its longest."""
    for first in range(0, len(texts), size):
        yield tokenizer(
            texts[first : first + size],
            padding=True,
            truncation=True,
            max_length=LIMIT,
            return_tensors=tensors,
        )


def middling(texts: Texts) -> str:
    """One of middle length."""
    return sorted(texts, key=len)[len(texts) // 2]


def by_length(texts: Texts, function: Callable[[Texts], Sequence[Any]]) -> list[Any]:
    """The function's answers, asked in order of the texts' lengths."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    answers = function([texts[index] for index in order])
    found = dict(zip(order, answers, strict=True))
    return [found[index] for index in range(len(texts))]


LIBRARIES = {
    "jax": our_sides,
    "torch": torch_sides,
    "onnxruntime": onnx_sides,
    "keras_hub": keras_sides,
}


def open_sides(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Opens the sides of the case's library; each answers all texts, or one, once
    before."""
    texts = json.loads(Path(case["texts"]).read_text(encoding="utf-8"))

    def side(name: str, answer: Answer) -> Callable[[int], Any]:
        own = [middling(texts)] if name.endswith(ONE) else texts
        answer(own)
        return lambda times: [answer(own) for _ in range(times)][-1]

    library = case["library"]
    opened = {name: side(name, a) for name, a in LIBRARIES[library](case).items()}
    if library in ("jax", "torch"):
        opened[PEAKS] = lambda _: measuring.peaks(library, *case["peak"])
    if library != "jax":
        return opened, {}
    import jax

    return opened, {"device": jax.devices()[0].device_kind}
