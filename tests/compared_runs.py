"""Finished runs for experiments.sweeps.compare: config and scores, untrained."""

import json


def a_run(folder, score, seed=0, **fields):
    folder.mkdir(parents=True)
    train = {"seeds": 1, "num_steps": 2, "early_stop": 0}
    config = {"seed": seed, "train": train, "optimizer": fields}
    (folder / "config.json").write_text(json.dumps(config))
    lines = [{"step": 2, "split": "train", "loss": 0.1}]
    lines += [
        {
            "step": step,
            "split": "dev",
            "time": 0.0,
            "accuracy": score - 0.1 * (2 - step),
        }
        for step in (1, 2)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


def edit(folder, **groups):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | groups))
