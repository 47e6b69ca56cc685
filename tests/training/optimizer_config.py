"""A config of an optimizer."""

from ml_collections import ConfigDict


def make_config(**fields) -> ConfigDict:
    num_steps = fields.pop("num_steps", 100)
    values = {
        "name": "bert_adam",
        "schedule": "polynomial",
        "learning_rate": 1e-2,
        "warmup_steps": 10,
        "warmup_fraction": 0.0,
        "weight_decay": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "decay_power": 1.0,
        "clip_norm": 1.0,
        "frozen": (),
    }
    second = {"fraction": 0.0, "learning_rate": 0.0, "warmup_steps": 0}
    second |= fields.pop("phase2", {})
    assert fields.keys() <= values.keys()
    return ConfigDict(
        {
            "optimizer": values | fields,
            "train": {"num_steps": num_steps},
            "phase2": second,
        }
    )
