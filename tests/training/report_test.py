"""What a run prints: its first lines, an evaluation's, guesses at held-out text."""

from bert_jax.tasks.fill_mask import printed
from bert_jax.training import report


def mask(wanted, *tokens):
    guesses = [
        {"token": token, "id": place, "probability": 0.5 / (place + 1)}
        for place, token in enumerate(tokens)
    ]
    return {"wanted": wanted, "guesses": guesses}


def test_blanks_are_numbered_and_a_right_guess_is_marked():
    masks = [mask("cat", "a", "cat"), mask("sat", "sat", "a")]
    rows = [{"text": "a [MASK] [MASK]s .", "masks": masks}]
    assert printed(rows, 80).splitlines() == [
        "",
        "  a [1] [2]s .",
        "   [1] cat             a 50%  *cat 25%",
        "   [2] sat             *sat 50%  a 25%",
    ]


def test_left_to_right_the_blank_is_after_the_text():
    rows = [{"text": "a cat", "masks": [mask("sat", "a")]}]
    assert printed(rows, 80).splitlines()[1:2] == ["  a cat [1]"]


def test_no_guess_is_left_out_between_others():
    rows = [{"text": "a [MASK]", "masks": [mask("sat", "a", "b" * 70, "c")]}]
    assert printed(rows, 80).splitlines()[2] == "   [1] sat             a 50%"


def test_a_text_without_blanks_is_whole():
    assert printed([{"text": "a cat", "masks": []}], 80) == "\n  a cat"


def test_an_evaluations_line_has_the_main_score_first_and_fits():
    scores = {"accuracy": 0.5, "loss": 1.25, **{f"more_{i}": 0.125 for i in range(20)}}
    line = report.one_line(1000, "dev", scores, "loss")
    assert line.startswith("step 1000 dev: loss 1.25, accuracy 0.5, more_0 0.125")
    assert len(line) <= 79
