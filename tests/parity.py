"""The same weights here and in `transformers`: outputs and gradients."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from bert_jax.convert import weights
from bert_jax.family import FAMILIES
from bert_jax.pretrained import Bert

OUTPUT, GRADIENT = 1e-5, 1e-4  # relative to the largest magnitude


def outputs_of(model: Any, batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns a `transformers` model's outputs, under our names, hidden states
    stacked."""
    import torch

    segments = batch["segment_ids"]
    found = model(
        input_ids=torch.tensor(batch["input_ids"]),
        attention_mask=torch.tensor(batch["input_mask"]),
        output_hidden_states=True,
        **({"token_type_ids": torch.tensor(segments)} if segments.any() else {}),
    )
    masked = type(model).__name__.endswith("ForMaskedLM")
    outputs = {"hidden_states": torch.stack(found.hidden_states)}
    for reference, ours in {
        "pooler_output": "pooled",
        "logits": "masked_lm_logits" if masked else "logits",
        "prediction_logits": "masked_lm_logits",
        "sop_logits": "next_sentence_logits",
        "seq_relationship_logits": "next_sentence_logits",
        "start_logits": "start_logits",
        "end_logits": "end_logits",
    }.items():
        if found.get(reference) is not None:
            outputs[ours] = found[reference]
    return outputs


def relevant(name: str, array: Any, mask: np.ndarray) -> Any:
    """Drops hidden states and logits at padding, which belong to no token."""
    if name == "hidden_states":
        return array[:, mask.reshape(-1, mask.shape[-1]).astype(bool)]
    if array.shape[: mask.ndim] == mask.shape:
        return array[mask.astype(bool)]
    return array


def check_outputs(
    ours: Mapping[str, Any], reference: Mapping[str, np.ndarray], mask: np.ndarray
) -> None:
    """Checks that each output is within OUTPUT of its largest number.

    Each layer's hidden states count as a separate output.

    Args:
      reference: Reference outputs under our names, of which the `relevant` ones count.
    """
    for name, value in reference.items():
        found = relevant(name, np.asarray(ours[name]), mask)
        pairs = (found, value) if name == "hidden_states" else ([found], [value])
        for mine, there in zip(*pairs, strict=True):
            atol = OUTPUT * abs(there).max()
            np.testing.assert_allclose(mine, there, rtol=0, atol=atol, err_msg=name)


def check_same(
    bert: Bert,
    model: Any,
    reference: Mapping[str, Any],
    batch: Mapping[str, np.ndarray],
) -> None:
    """Checks outputs, and the gradients of a loss that every output at a token enters.

    The gradients are within GRADIENT of each parameter's largest. A model for
    fine-tuning has its outputs alone compared: a pre-training model has its trunk.

    Args:
      reference: Outputs of `model` for the batch, under our names. Hidden states are
        stacked.
    """
    mask = batch["input_mask"]
    expected = {
        name: relevant(name, value.detach().numpy(), mask)
        for name, value in reference.items()
    }
    if not re.search("MaskedLM|PreTraining|LMHead", type(model).__name__):
        found = bert.apply(*batch.values())
        found["hidden_states"] = np.stack(found["hidden_states"])
        return check_outputs(found, expected, mask)
    random = np.random.RandomState(5)
    factors = {
        name: random.standard_normal(value.shape).astype(np.float32)
        for name, value in expected.items()
    }

    def loss(outputs: Mapping[str, Any], as_array: Any) -> Any:
        return sum(
            (relevant(name, outputs[name], mask) * as_array(factors[name])).sum()
            for name in factors
        )

    loss(reference, next(iter(reference.values())).new_tensor).backward()

    def of_params(params: Any) -> Any:
        outputs = bert.forward(params, *batch.values())
        outputs |= {"hidden_states": jnp.stack(outputs["hidden_states"])}
        return loss(outputs, jnp.asarray), outputs

    gradients, ours = jax.jit(jax.grad(of_params, has_aux=True))(bert.params)
    check_outputs(ours, expected, mask)
    check_gradients(bert, gradients, dict(model.named_parameters()))


def check_gradients(bert: Bert, gradients: Any, named: Mapping[str, Any]) -> None:
    """Checks every parameter of theirs, which may be several of ours."""
    layout = FAMILIES[bert.config.architecture].layout
    named = {layout.tied.get(name, name): value for name, value in named.items()}
    pooler = ["pooler"] if "pooler" in bert.params["bert"] else []
    compared: dict[str, dict[Any, np.ndarray]] = {}
    for part in ("bert", *bert.heads, *pooler):
        for parameter in layout.parameters(part, bert.config, len(bert.labels)):
            name = parameter.name
            if name not in named:  # a model without heads has no prefix
                name = name.partition(".")[2]
            given = parameter.convert_to_torch(
                np.asarray(parameter.get_value(gradients))
            )
            compared.setdefault(name, {})[parameter.path] = given
    assert compared.keys() == named.keys()
    for name, parts in compared.items():
        expected = named[name].grad.numpy()
        found, scale = np.concatenate(list(parts.values())), abs(expected).max()
        # The softmax takes no notice of these: rounding only.
        if re.search(r"\b(key|k_lin|k)\.bias$", name):
            scale = abs(named[name.replace("bias", "weight")].grad.numpy()).max()
        atol = GRADIENT * scale
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=name)


def check_export(folder: Path, out: Path) -> None:
    """Exports a folder's weights, and checks that they are the tensors of its file."""
    weights.find_source(folder).export(out)
    before, after = (load_file(x / "model.safetensors") for x in (folder, out))
    assert after.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
