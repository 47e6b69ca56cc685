"""The page of `--mode=serve`, in a browser: each kind of answer is drawn."""

import http.server
import json
import shutil
import threading

import pytest

from bert_jax.serving import server

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH"
    ),
]
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
FOX = "🦊 John <b>Smith</b> lives in Paris."
ANSWERS = {
    "classes": {"label": "good", "scores": {"bad": 0.25, "good": 0.75}},
    "entities": {
        "entities": [
            {"label": "PER", "start": 2, "end": FOX.index(" lives")},
            {"label": "LOC", "start": FOX.index("Paris"), "end": FOX.index(".")},
        ]
    },
    "labels": {"labels": ["b"], "scores": {"a": 0.25, "b": 0.75, "c": 0.1}},
    "number": {"score": 2.5},
    "vector": {"vector": [0.5] * 12, "similarity": 0.25},
    "reasons": {
        "label": "good",
        "scores": {"good": 1.0},
        "reasons": [
            {"text": "Paris", "start": 30, "end": 35, "field": "text", "score": 0.5},
            {"text": "John", "start": 2, "end": 6, "field": "text", "score": -0.25},
        ],
    },
    "squad": {"context": "In May.", "answer": "May", "start": 3, "end": 6},
    "error": None,
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="needs the browser extra (selenium)"
    )
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address():
    """Answers each text that names a kind as that kind of task."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            page = self.path == "/"
            about = {"status": "ok", "task": "ner", "fields": ["text", "text_b"]}
            about |= {"model": "mine", "labels": ["O", "B-PER", "I-PER", "B-LOC"]}
            about |= {"example": {"text": FOX, "text_b": "classes"}}
            self.reply(200, server.PAGE.read_bytes() if page else json.dumps(about))

        def do_POST(self):
            row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = ANSWERS[row.get("text_b", "entities")]
            if answer is None:
                self.reply(400, json.dumps({"error": "row 0: <b>wrong</b>"}))
            else:
                self.reply(200, json.dumps(row | answer))

        def reply(self, status, body):
            body = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}/"
    serving.shutdown()


@pytest.fixture
def answer(browser, address):
    """Fills in the form as a person does, and returns the drawn result."""
    browser.get(address)
    browser.implicitly_wait(5)

    def send(kind):
        for name, text in (("text", FOX), ("text_b", kind)):
            area = browser.find_element("id", f"field-{name}")
            browser.execute_script("arguments[0].value = arguments[1]", area, text)
        browser.find_element("id", "send").click()
        browser.find_element("css selector", "#answer > *, #error:not(:empty)")
        return browser.find_element("id", "answer")

    return send


@pytest.mark.slow
def test_entities_by_characters_not_code_units(answer):
    found = answer("")
    marks = found.find_elements("css selector", "mark")
    assert [mark.text.split("PER")[0].split("LOC")[0].strip() for mark in marks] == [
        *("John <b>Smith</b>", "Paris")
    ]
    assert len({mark.get_attribute("class") for mark in marks}) == 2
    assert not found.find_elements("css selector", ".passage b")  # text stays text


def test_example_is_answered_and_listed(answer, browser):
    answer("squad")
    browser.find_element("id", "example").click()
    browser.find_element("css selector", "#answer .bar")
    first, second = browser.find_elements("css selector", "#asked button")
    assert first.text.split("\n")[1] == "good" and second.text.split("\n")[1] == "May"
    second.click()
    assert browser.find_element("css selector", "#answer mark").text == "May"
    assert browser.title == "Tags of words · mine"
    chips = browser.find_elements("css selector", "#about .chip")
    assert [chip.text for chip in chips] == ["PER", "LOC"]


@pytest.mark.slow
def test_labels_that_are_given_are_marked(answer):
    bars = answer("labels").find_elements("css selector", ".bar")
    assert [x.text.split("\n")[0] for x in bars] == ["\u2713 b", "a", "c"]
    given = [x.get_attribute("class") for x in bars]
    assert given == ["bar given", "bar", "bar"]


@pytest.mark.slow
def test_numbers_and_vectors_are_shown_as_such(answer):
    assert answer("number").find_element("css selector", "h2").text == "2.500"
    found = answer("vector")
    assert found.find_element("css selector", "h2").text == "similarity 0.250"
    said = found.find_element("css selector", "p").text
    assert said == f"a vector of 12 numbers: {', '.join(['0.500'] * 8)}, ..."


@pytest.mark.slow
def test_reasons_are_marked_by_their_signs(answer):
    marks = answer("reasons").find_elements("css selector", "mark")
    assert [mark.text for mark in marks] == ["John-0.25", "Paris0.50"]
    assert [x.get_attribute("class") for x in marks] == ["kind6", "kind2"]


@pytest.mark.slow
def test_error_is_shown(answer, browser):
    answer("error")
    assert browser.find_element("id", "error").text == "row 0: <b>wrong</b>"
