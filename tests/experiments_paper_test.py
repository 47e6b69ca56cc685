"""The paper's tables by one command: its plans and its refusals."""

import pytest
from paper_runs import command, data, kinds, planned

from bert_jax.errors import UserError
from experiments.lib.published import TABLE_6
from experiments.paper import options, tables, tasks

__all__ = ["command", "data"]  # fixtures


def test_table_5_is_four_pretrainings_and_five_systems(data):
    plan = planned(data)
    assert kinds(plan).count("pre-training") == 4
    assert len(plan) == 4 + 5 * 5
    text = "\n".join(" ".join(run.arguments) for run in plan)
    for field in ("task.objective=ltr", "task.nsp_loss=False", "corpus.nsp=False"):
        assert text.count(field) == 1
    tuned = [run for run in plan if "--config.task.bilstm=True" in run.arguments]
    assert {run.needs[0].name.partition("-")[0] for run in tuned} == {"ltr"}
    assert len(tuned) == 5


def test_runs_that_tables_share_run_once(data):
    """The same folders for any table, requested tasks and output."""
    five, one, figure = (
        planned(data, table=name) for name in ("table5", "table1", "figure5")
    )
    both = {run.folder for run in five} & {run.folder for run in one}
    names = sorted(f.parent.name + "/" + f.name.partition("-")[0] for f in both)
    assert len(both) == 5 and "pretraining/mlm" in names
    assert {f.folder for f in figure if not f.needs} < {f.folder for f in five}
    elsewhere = planned(data, "--tasks=sst2", output="elsewhere")
    ours = {"/".join(run.folder.parts[1:]) for run in five}
    assert {"/".join(run.folder.parts[1:]) for run in elsewhere} < ours


def test_run_folder_name_has_what_shapes_the_run(data):
    first = planned(data)[0].folder
    assert planned(data)[0].folder == first
    for field in ("--config.train.num_steps=70", "--config.seed=1"):
        assert planned(data, field)[0].folder != first
    # Fine-tuning's fields rename fine-tuning alone.
    other = planned(data, "--finetuning.train.num_steps=70")
    assert other[0].folder == first and other[1].folder != planned(data)[1].folder


def test_figure_5_starts_from_checkpoints_that_are_kept(data):
    plan = planned(data, "--config.train.num_steps=9000", table="figure5", size="tiny")
    for run in plan:
        if run.kind == "pre-training":
            fields = dict(arg.partition("=")[::2] for arg in run.arguments)
            keep = int(fields["--config.checkpoint.keep_every"])
            assert keep == 1800
            assert keep % int(fields["--config.checkpoint.save_every"]) == 0
    mlm = [run for run in plan if run.needs == (plan[0].folder,)]
    starts = [run.arguments[1].rpartition("/")[2] for run in mlm]
    assert starts == ["1800", "3600", "5400", "7200", plan[0].folder.name]
    assert kinds(plan).count("mnli") == 10 and set(kinds(plan)) == {
        "pre-training",
        "mnli",
    }


def test_table6_sizes():
    for size in ("base", "large"):
        names = [f"L={n} H={h} A={a}" for n, h, a in tables.shapes(size)]
        assert names == list(TABLE_6.rows)
    for size in tables.SIZES:
        shapes = tables.shapes(size)
        assert len(set(shapes)) == 6
        for layers, hidden, heads in shapes:
            assert layers > 0 and hidden % heads == 0
    tiny = tables.build("table6", "tiny")
    assert tiny.systems[3].pretraining == tables.MLM  # shared with the other tables


def test_table_8_shares_the_papers_own_mix(data):
    plan = planned(data, table="table8")
    assert kinds(plan).count("pre-training") == kinds(plan).count("features") == 6
    first = plan[0].folder
    assert first == planned(data, table="table5")[0].folder
    texts = [" ".join(run.arguments) for run in plan if not run.needs]
    features = [run.arguments for run in plan if run.kind == "features"]
    assert all("--choices=sum_all" in arguments for arguments in features)
    assert "mask_fraction=0.0" in texts[5] and "random_fraction=1.0" in texts[5]


def test_claims_agree_with_paper_figures():
    """Where the paper claims better, its own table says so."""
    for name, size in (("table1", "large"), ("table2", "large"), ("table4", "large"),
                       ("table5", "base"), ("table6", "base"), ("table7", "base"),
                       ("table8", "base")):  # fmt: skip
        table = tables.build(name, size)
        rows = {s.name: table.published.rows.get(s.paper, {}) for s in table.systems}
        found = 0
        for claim in table.claims:
            for pair in claim.pairs:
                both = [rows[s].get(pair.column) for s in (pair.first, pair.second)]
                if None not in both:
                    found += 1
                    less = both[0] - both[1]
                    assert abs(less) < claim.margin if claim.margin else less >= 0
        assert found, name


def test_table_7_runs_features_once_for_all_choices(data):
    plan = planned(data, table="table7")
    assert kinds(plan) == ["pre-training", "ner", "features"]
    assert "--config.tokenizer.lowercase=False" in plan[0].arguments
    assert planned(data, table="features") == plan
    assert "--document_context" not in plan[2].arguments
    assert not any("--choices" in text for text in plan[2].arguments)
    assert "--size=128" in plan[2].arguments
    base = planned(data, table="table7", size="base")
    assert {"--document_context", "--size=768"} <= set(base[-1].arguments)
    assert "--config.task.document_context=True" in base[1].arguments


@pytest.mark.parametrize("name", tables.TABLES)
@pytest.mark.parametrize("size", ["tiny", "large"])
def test_rows_are_the_papers(name, size):
    table = tables.build(name, size)
    systems = {system.name for system in table.systems}
    assert len(systems) == len(table.systems)
    keys = {column.key for column in table.columns}
    for system in table.systems:
        assert not system.paper or system.paper in table.published.rows
    for claim in table.claims:
        for pair in claim.pairs:
            assert {pair.first, pair.second} <= systems and pair.column in keys
    rows = [table.published.rows[s.paper] for s in table.systems if s.paper]
    assert all(keys & row.keys() for row in rows)


def test_tasks_without_data_are_left_out_and_named(data, command):
    (data / "MNLI" / "dev_matched.tsv").unlink()
    *_, out, _ = command("table5", "--seeds=2", "--plan")
    assert f"left out: mnli: {data}/MNLI has no dev_matched.tsv" in out
    given = ["table5", f"--data={data}", "--corpus=pydocs", "--tasks=mnli"]
    with pytest.raises(UserError, match=r"mnli: .*has no dev_matched\.tsv"):
        options.parse([*given, "--size=tiny"])
    with pytest.raises(UserError, match="no data of table5 for mnli: no folder"):
        options.parse(["table5", "--corpus=pydocs", "--size=tiny"])


def test_data_folders_are_found(data, tmp_path):
    found = tasks.find("squad", [str(tmp_path), str(data)])
    assert found.fields == (
        f"task.train_file={data}/squad/train-v1.1.json",
        f"task.dev_file={data}/squad/dev-v1.1.json",
    )
    assert tasks.find("ner", [str(data)]).fields[1].endswith("NER/eng.testa")
    both = tmp_path / "two" / "ner"
    both.mkdir(parents=True)
    for name in ("a.train.conll", "b.train.conll", "a.dev.conll"):
        (both / name).touch()
    assert "a.train.conll and b.train.conll" in tasks.find("ner", [str(both.parent)])
    assert tasks.find("imdb", [str(data)]).config == ("text.py",)
    assert tasks.find("rte", ["tfds:glue"]).fields == ("task.data_dir=tfds:glue/rte",)
    (tmp_path / "glue").symlink_to(data)
    assert isinstance(tasks.find("rte", [str(tmp_path)]), tasks.Found)
