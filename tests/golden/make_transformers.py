"""Makes transformers.json and transformers.safetensors: what `transformers` computes.

    python tests/golden/make_transformers.py    (with the parity extra)

The weights are not stored: they are drawn from NumPy's RandomState, whose numbers never
change, so that the tests can draw them again without torch.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent
# Of each architecture, our names of its outputs and theirs.
OUTPUTS = {
    "BertModel": {"pooled": "pooler_output"},
    "BertForPreTraining": {
        "masked_lm_logits": "prediction_logits",
        "next_sentence_logits": "seq_relationship_logits",
    },
    "BertForMaskedLM": {"masked_lm_logits": "logits"},
    "BertLMHeadModel": {"lm_logits": "logits"},
    "BertForNextSentencePrediction": {"next_sentence_logits": "logits"},
    "BertForSequenceClassification": {"logits": "logits"},
    "BertForTokenClassification": {"logits": "logits"},
    "BertForQuestionAnswering": {
        "start_logits": "start_logits",
        "end_logits": "end_logits",
    },
    "BertForMultipleChoice": {"logits": "logits"},
}
SIZES = {
    "three_heads": {
        "vocab_size": 50,
        "hidden_size": 12,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "max_position_embeddings": 8,
    },
    "wide": {
        "vocab_size": 61,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 7,
        "max_position_embeddings": 12,
        "hidden_act": "gelu_new",
    },
    "deep": {
        "vocab_size": 40,
        "hidden_size": 16,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "intermediate_size": 64,
        "max_position_embeddings": 10,
        "type_vocab_size": 3,
        "hidden_act": "relu",
    },
}


def config_fields(architecture: str, size: str) -> dict:
    """What config.json says; a classifier has three labels."""
    labels = {str(i): f"LABEL_{i}" for i in range(3)}
    classifier = architecture.endswith(
        ("SequenceClassification", "TokenClassification")
    )
    return {
        "architectures": [architecture],
        "model_type": "bert",
        **SIZES[size],
        **({"id2label": labels} if classifier else {}),
        **({"is_decoder": True} if architecture == "BertLMHeadModel" else {}),
    }


def random_tensors(shapes: dict[str, list[int]], seed: int) -> dict[str, np.ndarray]:
    """Weights far from their initial values, so that a swap or a transposition shows:
    LayerNorm scales from 0.5 to 3, biases that are not zero."""
    random = np.random.RandomState(seed)
    tensors = {}
    for name in sorted(shapes):
        values = random.standard_normal(shapes[name])
        if name.endswith("LayerNorm.weight"):
            values = random.uniform(0.5, 3.0, shapes[name])
        elif len(shapes[name]) == 1:
            values *= 0.5
        elif "embeddings" not in name:
            values /= np.sqrt(shapes[name][1])
        tensors[name] = values.astype(np.float32)
    return tensors


def inputs(fields: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Four rows: full length, two padded ones, one of a single token; two segments."""
    random = np.random.RandomState(seed)
    length = fields["max_position_embeddings"]
    choices = (3,) if fields["architectures"] == ["BertForMultipleChoice"] else ()
    lengths = np.array([length, 5, length - 3, 1]).reshape(4, *(1 for _ in choices), 1)
    mask = np.broadcast_to(np.arange(length) < lengths, (4, *choices, length))
    # Piece 0 is padding: `transformers` gives its embedding no gradient.
    ids = random.randint(1, fields["vocab_size"], mask.shape) * mask
    return {
        "input_ids": ids,
        "input_mask": mask.astype(np.int64),
        "segment_ids": (np.arange(length) >= 3) * mask.astype(np.int64),
    }


def torch_outputs(model, batch: dict[str, np.ndarray]) -> dict:
    """What a model of `transformers` gives, under our names, hidden states stacked."""
    import torch

    tensors = {name: torch.tensor(array).contiguous() for name, array in batch.items()}
    found = model(
        input_ids=tensors["input_ids"],
        attention_mask=tensors["input_mask"],
        token_type_ids=tensors["segment_ids"],
        output_hidden_states=True,
    )
    names = OUTPUTS[type(model).__name__]
    outputs = {ours: found[theirs] for ours, theirs in names.items()}
    return {"hidden_states": torch.stack(found.hidden_states), **outputs}


def main() -> None:
    import torch
    import transformers

    cases, golden = {}, {}
    names = [(a, "three_heads") for a in OUTPUTS]
    names += [("BertForPreTraining", size) for size in SIZES if size != "three_heads"]
    for architecture, size in names:
        fields = config_fields(architecture, size)
        config = transformers.BertConfig(**fields)
        model = getattr(transformers, architecture)(config).eval()
        shapes = {name: list(p.shape) for name, p in model.named_parameters()}
        tensors = random_tensors(shapes, seed=0)
        state = {name: torch.tensor(value) for name, value in tensors.items()}
        # What is tied to them comes along.
        model.load_state_dict(state, strict=False)
        name = f"{architecture}-{size}"
        cases[name] = {"config": fields, "shapes": shapes}
        for key, value in torch_outputs(model, inputs(fields)).items():
            # The trunk is the same below every head.
            if key != "hidden_states" or architecture == "BertForPreTraining":
                golden[f"{name}/{key}"] = value.detach().numpy()
    versions = {m.__name__: m.__version__ for m in (torch, transformers)}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items())
    text = f'{{"versions": {json.dumps(versions)},\n"cases": {{\n{lines}}}}}\n'
    (HERE / "transformers.json").write_text(text)
    save_file(golden, HERE / "transformers.safetensors")


if __name__ == "__main__":
    main()
