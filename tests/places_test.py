"""Object stores are refused in one line, and nothing is made in their name."""

import pytest

from bert_jax import main


@pytest.mark.parametrize(
    "flag",
    ["--workdir", "--output", "--config.corpus.data_dir", "--config.init_from"],
)
def test_an_address_is_no_folder(flag, micro, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    places = {"--workdir": "run", flag: "gs://bucket/run"}
    arguments = [f"{name}={value}" for name, value in places.items()]
    assert main.main([f"--config={micro}", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {flag}=gs://bucket/run: only folders of a file")
    assert list(tmp_path.iterdir()) == []
