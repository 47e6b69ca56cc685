"""The page of attention, in a browser: what is chosen is what is drawn, and the numbers
are the tensor's."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models

from bert_jax.attentions import files as attention_files
from tests import browsers

pytestmark = browsers.MARKS
browser = browsers.browser

HARD = [
    *("[CLS]", "<script>document.title='run'</script>", "</script>", "\"quoted'&amp;"),
    *("🦊", "👩‍👩‍👧", "שלום", "مرحبا", "\u202eevil", "##ing", "a" * 60, "中文"),
    *("<!--", "[SEP]", "next", "##s", "[SEP]"),
]
LONG = ["[CLS]", *(f"token{n}" for n in range(126)), "[SEP]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows 0 and 1; row 0 has two parts, of which the second is long."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    vocabulary = {t: n for n, t in enumerate(dict.fromkeys([*HARD, *LONG]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[CLS]"))
    rows = {(1, 0): HARD[:5], (0, 0): HARD, (0, 1): LONG}
    with attention_files.keeping(str(folder / "who"), tokenizer) as kept:
        for (row, part), tokens in rows.items():
            own = np.array([vocabulary[token] for token in tokens])
            scores = 3 * rng.normal(size=(3, 4, len(own), len(own)))
            shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
            segments = (np.arange(len(own)) > 13).astype(np.int64)
            kept.add(row, part, own, segments, shares.astype(np.float16))
    return folder


class Page:
    """What a person does and sees."""

    def __init__(self, driver, folder):
        self.driver = driver
        driver.get((folder / "who.html").as_uri())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def choose(self, name, index):
        find = self.driver.find_element("id", name)
        find.find_elements("css selector", "option")[index].click()

    def button(self, side, index):
        return self.driver.find_elements("css selector", f"#{side} button")[index]

    def leave(self):
        """Takes the pointer away from every token."""
        header = self.driver.find_element("id", "status")
        browsers.point(self.driver, header)

    def texts(self, side, part):
        script = "return [...document.querySelectorAll(arguments[0])]"
        return self.run(f"{script}.map((e) => e.textContent)", f"#{side} .{part}")

    def lines(self):
        """From, to and width of each line."""
        return self.run(
            "return [...document.querySelectorAll('#lines path')].map((line) => "
            "[Number(line.dataset.from), Number(line.dataset.to), "
            "Number(line.getAttribute('stroke-width'))])"
        )

    def status(self):
        return self.driver.find_element("id", "status").text

    def errors(self):
        """What went wrong in the page's code, or was asked of the network."""
        return [e for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]


@pytest.fixture
def page(browser, folder):
    browser.set_window_size(1200, 800)
    page = Page(browser, folder)
    yield page
    assert page.errors() == []
    assert browser.title == "Attention"  # no token's code has run
    script = "return performance.getEntriesByType('resource').length"
    assert page.run(script) == 0  # the page is all there is


@pytest.mark.slow
def test_row_layer_head_and_token_choose_what_is_drawn(page, folder):
    tensors = load_file(folder / "who.safetensors")
    for row, name in enumerate(("attentions_0", "attentions_0_1", "attentions_1")):
        page.choose("row", row)
        tensor = tensors[name].astype(np.float64)
        count = tensor.shape[-1]
        steps = ((0, 0, 1), (2, 0, 1), (2, 3, 1), (2, 3, count - 1))
        for layer, head, token in steps if row == 0 else (steps[0], steps[-1]):
            page.choose("layer", layer)
            page.choose("head", head)
            for side, other in (("from", "to"), ("to", "from")):
                page.button(side, token).click()
                page.leave()
                chosen = tensor[layer, head]
                wanted = chosen[token] if side == "from" else chosen[:, token]
                shown = [float(text) for text in page.texts(other, "number")]
                # JavaScript rounds a tie up, NumPy to even.
                np.testing.assert_allclose(shown, wanted, atol=0.00051)
                assert set(page.texts(side, "number")) == {""}
                drawn = {pair[side == "from"]: pair[2] for pair in page.lines()}
                assert drawn.keys() == set(np.flatnonzero(wanted >= 0.0005))
                for index, width in drawn.items():
                    assert width == pytest.approx(0.5 + 3.5 * wanted[index])
                assert f"{max(shown):.3f}" in page.status()
                page.button(side, token).click()  # lets it go
                page.leave()
            strong = np.argwhere(tensor[layer, head] >= 0.05).tolist()
            assert [pair[:2] for pair in page.lines()] == strong
            assert "at least 0.05" in page.status()


@pytest.mark.slow
def test_pointing_and_the_keyboard_do_as_a_click_does(page, folder):
    tensor = load_file(folder / "who.safetensors")["attentions_0"]
    page.leave()
    assert set(page.texts("to", "number")) == {""}
    browsers.point(page.driver, page.button("from", 3))
    pointed = page.texts("to", "number")
    np.testing.assert_allclose(np.float64(pointed), tensor[0, 0, 3], atol=0.00051)
    page.leave()
    assert set(page.texts("to", "number")) == {""}
    page.button("from", 3).send_keys("\ue007")  # Enter
    assert page.texts("to", "number") == pointed
    assert page.button("from", 3).get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("width", [1200, 420])
def test_hard_tokens_stay_tokens_and_nothing_is_wider_than_the_screen(page, width):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for row, tokens in enumerate((HARD, LONG)):
            page.choose("row", row)
            page.button("from", 2).click()
            assert page.texts("from", "token") == tokens
            assert page.texts("to", "token") == tokens
            assert page.run("return document.documentElement.scrollWidth") <= width
            lowest = page.run(
                "return Math.max(...[...document.querySelectorAll('li')]"
                ".map((item) => item.getBoundingClientRect().height))"
            )
            assert lowest == pytest.approx(24)
        italic = page.run("return document.querySelectorAll('#from .second').length")
        assert italic == len(LONG) - 14
        options = page.run(
            "return [...document.querySelectorAll('#row option')].map((o) => o.text)"
        )
        assert [text.split(":")[0] for text in options] == ["0", "0, part 1", "1"]
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
