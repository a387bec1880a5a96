"""Tests of the page in a real browser, at desktop and phone size: what it shows and does, and what it must not do."""

from __future__ import annotations

import http.server
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from kerneldyno.cli import app
from kerneldyno.report import wording
from tests.report.report_candidates import BATCH, EPISODES, HOSTILE, OUTCOMES, Recorded

pytestmark = pytest.mark.slow

DESK, PHONE = (1280, 900), (390, 844)
OPENERS = "#candidate-table tbody .open"


def made(*arguments: object) -> Path:
    """Write a page with `kerneldyno report ARGUMENTS`; return its path, which is the last argument."""
    ran = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert ran.exit_code == 0, ran.output
    return Path(str(arguments[-1]))


@pytest.fixture(scope="module")
def results_page(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "results.html"
    return made(recorded.results, "--requests", recorded.requests, "-o", page)


@pytest.fixture(scope="module")
def turns_page(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(recorded.turns, "-o", tmp_path_factory.mktemp("page") / "turns.html")


@contextmanager
def opened(
    browser: Browser, path: Path, size: tuple[int, int] = DESK, *, anchor: str = "", **context: object
) -> Iterator[Page]:
    """Open a page and yield it when it is ready.

    At the end, check that it logged nothing, requested nothing but itself, and ran no hostile script.
    """
    width, height = size
    scheme = "dark" if size == PHONE else "light"
    around = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **context)  # type: ignore[arg-type]
    page = around.new_page()
    page.set_default_timeout(20_000)
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(path.as_uri() + anchor)
        if context.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]")
        yield page
        assert complaints == []
        assert [url for url in asked if not url.startswith(("data:", path.as_uri()))] == []
        if context.get("java_script_enabled", True):
            assert page.evaluate("window.pwned") is None
    finally:
        around.close()


def overflow(page: Page) -> list[str]:
    """Return the elements that are wider than the window, so that a user would have to scroll sideways."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("body, body *")]
          .filter((one) => one.getClientRects().length && !one.closest("svg svg, svg *") &&
                           (one.getBoundingClientRect().right > innerWidth + 1 || one.scrollWidth > innerWidth + 1))
          .map((one) => one.tagName + "#" + one.id + "." + one.className)"""
    )
    return found


def column(page: Page, name: str) -> list[str]:
    return page.locator(f'#candidate-table td[data-name="{name}"]').all_inner_texts()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_everything_fits_and_every_candidate_opens(browser: Browser, results_page: Path, size: tuple[int, int]) -> None:
    with opened(browser, results_page, size) as page:
        assert overflow(page) == []
        assert page.locator(OPENERS).count() == len(BATCH)
        page.locator(OPENERS).first.click()
        for _ in BATCH:
            page.wait_for_selector("#viewer[open] #viewer-body .message")
            assert overflow(page) == []
            for view in page.locator(".views button").all() if size == PHONE else ():
                view.click()
                assert page.locator(".view .line").count() > 0
                assert overflow(page) == []
            shown = page.locator("#viewer-title").inner_text()
            if page.locator("#viewer-after").is_enabled():
                page.keyboard.press("ArrowRight")
                page.wait_for_function(
                    "(before) => document.getElementById('viewer-title').innerText !== before", arg=shown
                )
        assert page.locator("#viewer-after").is_disabled(), "that was the last one"


@pytest.mark.parametrize("width", [320, 560, 701, 768, 901])
def test_no_width_needs_scrolling_sideways(browser: Browser, results_page: Path, width: int) -> None:
    with opened(browser, results_page, (width, 800)) as page:
        assert overflow(page) == []
        page.locator(OPENERS, has_text="<script>window.pwned=1").click()
        page.wait_for_selector("#viewer-body .message")
        assert overflow(page) == []


@pytest.mark.usefixtures("recorded")  # the services of `recorded` cannot run while a browser runs
@pytest.mark.parametrize("width", [320, 390, 701, 1280])
def test_groups_fit_any_width(browser: Browser, tmp_path: Path, width: int) -> None:
    names = [
        f"level{level}/{number}_a_problem_of_{'a_long_name_' * level}" for level in (1, 2, 3) for number in range(4)
    ]
    names.append("a_folder_of_problems_whose_name_is_long_and_has_no_space_in_it/one")
    rows = [{"id": name, "outcome": "CORRECT", "speedup": 1234.5, "labels": {"problem": name}} for name in names]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with opened(browser, made(tmp_path / "results.jsonl", "-o", tmp_path / "page.html"), (width, 800)) as page:
        assert page.locator("#groups tbody tr").count() == 8, "each with its sure wins"
        assert overflow(page) == []


def test_outcomes_are_counted_and_coloured(browser: Browser, results_page: Path) -> None:
    with opened(browser, results_page) as page:
        rows = [row.split() for row in page.locator("#outcomes table").first.locator("tbody tr").all_inner_texts()]
        lost = {"REFERENCE_ERROR", "INFRASTRUCTURE_ERROR", "PROBLEM_TOO_LARGE"}
        judged = {name: count for name, count in Counter(OUTCOMES.values()).items() if name not in lost}
        assert {row[0]: int(row[1]) for row in rows} == judged
        assert {row[0]: row[2] for row in rows}["CORRECT"] == f"{100 * 3 / 10:.1f}"
        causes = page.locator("#outcomes table").nth(1).inner_text()
        assert "the reference failed" in causes
        assert "DEADLINE_EXCEEDED" in causes or "NO_MATCHING_DEVICE" in causes
        classes = {"CORRECT": "good", "REJECTED": "bad", "INVALID": "odd", "INFRASTRUCTURE_ERROR": "odd"}
        for name, style in classes.items():
            assert page.locator(f".outcome.{style}", has_text=name).count() > 0
        warnings = page.locator(".warnings").inner_text()
        assert "All 2 timed candidates ran on a CPU" in warnings
        assert "1 of 3 right candidates were not timed" in warnings
        assert page.locator("#fast .mark").inner_text() == "interpreter times"
        assert "Share of 10 candidates with a verdict, or 3 problems" in page.locator("#fast").inner_text()


def test_sorting(browser: Browser, results_page: Path) -> None:
    with opened(browser, results_page) as page:
        page.locator("#candidate-table th button", has_text="speedup").click()
        speedups = [float(text.split("x")[0]) for text in column(page, "speedup") if text]
        assert len(speedups) == 2
        assert speedups == sorted(speedups, reverse=True)
        assert column(page, "speedup")[2:] == [""] * (len(BATCH) - 2), "what has none comes last"
        page.locator("#candidate-table th button", has_text="speedup").click()
        assert [float(text.split("x")[0]) for text in column(page, "speedup") if text] == speedups[::-1]
        assert page.locator("th[aria-sort=ascending]").inner_text().strip() == "speedup"
        others = [text.split() for text in column(page, "other time") if text]
        assert [words[1:] for words in others] == [["end", "to", "end"]] * len(speedups)
        assert all(float(words[0].removesuffix("x")) > 0 for words in others)
        page.locator("#candidate-sort").select_option("outcome:1")
        assert column(page, "outcome") == sorted(OUTCOMES.values())


def test_a_page_writes_speedups_as_everything_else_does(browser: Browser, results_page: Path) -> None:
    values = [2.6e-05, 0.00087, 0.0999, 0.5, 1.0, 1.0849, 9.996, 12.345, 100.0, 1000.0, 54321.6, 2.5e7]
    with opened(browser, results_page) as page:
        assert page.evaluate("(values) => values.map(times)", values) == [
            wording.times(value) for value in values[:-1]
        ] + ["2.50e+7x"]


def test_filters(browser: Browser, results_page: Path) -> None:
    with opened(browser, results_page) as page:
        page.locator("#candidate-outcome").select_option(label="RUNTIME_ERROR (2)")
        assert column(page, "outcome") == ["RUNTIME_ERROR"] * 2
        page.locator("#candidate-search").fill("SEGFAULT")
        assert page.locator(OPENERS).all_inner_texts() == ["segfault"]
        assert page.locator("#candidate-count").inner_text() == f"1 of {len(BATCH)}"
        page.locator("[data-finding=S19]").click()
        assert page.locator(OPENERS).all_inner_texts() == ["decoy"]
        assert page.locator("#candidate-search").input_value() == "", "the button shows all who have the finding"
        page.locator("#problem-search").fill("soft")
        page.locator("#problem-table .open").click()
        assert column(page, "problem") == ["softmax"] * sum(name.startswith("softmax/") for name in BATCH)
        page.locator("#candidate-problem").click()
        assert page.locator(OPENERS).count() == len(BATCH)


def test_changes_since_the_turn_before(browser: Browser, turns_page: Path) -> None:
    with opened(browser, turns_page) as page:
        assert page.locator("#fast > table tbody td:first-child").all_inner_texts() == [
            text for name in ("turn 1", "turn 2", "turn 3", "best of 3 turns") for text in (name, "sure")
        ]
        page.locator("#fast summary").click()
        assert page.locator("#fast details tbody td:first-child").all_inner_texts()[:2] == [
            "turn 1, fast@p_in_all",
            "turn 1, fast@p",
        ]
        assert "3 finished episodes of 2 problems" in page.locator("#fast").inner_text()
        page.locator("#candidate-table tr", has_text="relu").locator(".open", has_text="sample 1, turn 3").click()
        assert page.locator(".view .removed").all_inner_texts() == ["        return x.abs()"]
        assert page.locator(".view .added").all_inner_texts() == ["        return x.clamp(min=0)"]
        assert page.locator(".view .line").count() == 5
        page.locator(".gap").first.click()
        assert page.locator(".view .line").first.inner_text() == "import torch"
        assert page.locator(".view .line").count() == 7
        page.locator(".views button", has_text="source").click()
        assert page.locator(".view .line").count() == 6
        assert page.locator(".view .removed, .view .added").count() == 0
        page.locator(".turns button", has_text="turn 1").click()
        page.locator("#viewer-title", has_text="COMPILE_ERROR").wait_for()
        assert page.locator(".views button").all_inner_texts() == ["source"], "there is no turn before the first"
        assert "SyntaxError" in page.locator("#viewer-body").inner_text()


def test_an_answer_without_a_candidate(browser: Browser, turns_page: Path) -> None:
    with opened(browser, turns_page, PHONE) as page:
        page.locator("#candidate-table tr", has_text="INVALID").locator(".open").click()
        page.locator("summary", has_text="The answer, which holds no candidate").wait_for()
        assert HOSTILE in page.locator("#viewer-body").inner_text()
        assert overflow(page) == []


def test_hostile_words_are_words(browser: Browser, results_page: Path) -> None:
    with opened(browser, results_page) as page:
        opener = page.locator(OPENERS, has_text="<script>window.pwned=1")
        assert opener.inner_text() == HOSTILE
        opener.click()
        shown = page.locator("#viewer-body")
        shown.locator(".line").first.wait_for()
        assert "RuntimeError: " + HOSTILE in shown.inner_text()
        assert "\u27e8U+202E\u27e9" in shown.inner_text(), "what turns the direction of reading is named"
        assert page.locator("#viewer img, #viewer svg, #viewer script").count() == 0
        page.keyboard.press("Escape")
        page.locator(OPENERS, has_text="untimed").click()
        shown.locator(".line", has_text=f"# {HOSTILE}").wait_for()
        shown.locator("summary", has_text="It wrote").wait_for()


def test_the_policy_holds(browser: Browser, results_page: Path) -> None:
    """Even a script in the page could neither turn text into markup nor send a request."""
    hits: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hits.append(self.path)
            self.send_error(404)

        def log_message(self, *arguments: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    try:
        page.goto(results_page.as_uri())
        page.wait_for_selector("html[data-ready]")
        url = f"http://127.0.0.1:{server.server_port}/"
        markup = [
            "document.body.innerHTML = '<b>x</b>'",
            "document.createElement('script').text = 'window.pwned = 1'",
            "new DOMParser().parseFromString('<b>x</b>', 'text/html')",
        ]
        for attempt in markup:
            tried = f"() => {{ try {{ {attempt}; return 'allowed'; }} catch (error) {{ return error.name; }} }}"
            assert page.evaluate(tried) == "TypeError", attempt
        page.evaluate(
            """async (url) => {
              const made = (tag, attributes) => Object.assign(document.createElement(tag), attributes);
              const added = (tag, attributes) => document.body.appendChild(made(tag, attributes));
              const attempts = [
                () => fetch(url + "fetch"),
                () => navigator.sendBeacon(url + "beacon"),
                () => new WebSocket(url.replace("http", "ws") + "socket"),
                () => new EventSource(url + "events"),
                () => added("img", { src: url + "image" }),
                () => added("iframe", { src: url + "frame" }),
                () => added("link", { rel: "stylesheet", href: url + "style" }),
                () => added("form", { action: url + "form", method: "get" }).submit(),
              ];
              for (const attempt of attempts) try { await attempt(); } catch (error) { /* refused */ }
            }""",
            url,
        )
        page.wait_for_timeout(200)
        assert hits == []
        page.goto(url + "reachable")
        assert "/reachable" in hits, "the server would have noticed"
    finally:
        page.close()
        server.shutdown()
        server.server_close()


def test_by_keyboard_alone(browser: Browser, results_page: Path) -> None:
    with opened(browser, results_page) as page:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('#candidate-table tbody .open')"):
                break
        name = page.evaluate("document.activeElement.innerText")
        page.keyboard.press("Enter")
        page.locator("#viewer-title", has_text=name).wait_for()
        page.wait_for_selector("#viewer-body .message")
        assert page.evaluate("document.getElementById('viewer').contains(document.activeElement)")
        page.keyboard.press("Escape")
        assert page.locator("#viewer[open]").count() == 0
        assert page.evaluate("document.activeElement.innerText") == name


def test_a_link_to_one_candidate(browser: Browser, turns_page: Path) -> None:
    with opened(browser, turns_page) as page:
        page.locator(OPENERS).nth(4).click()
        page.wait_for_selector("#viewer-body .message")
        anchor, title = page.evaluate("[location.hash, document.getElementById('viewer-title').innerText]")
    with opened(browser, turns_page, anchor=anchor) as page:
        assert page.locator("#viewer-title").inner_text() == title


def test_without_script_the_figures_are_there(browser: Browser, results_page: Path) -> None:
    with opened(browser, results_page, PHONE, java_script_enabled=False) as page:
        assert page.locator(".tile").count() == 6
        assert page.locator("svg.chart").count() == 2
        assert page.locator("noscript").inner_text().startswith("The tables of problems")


def test_on_paper(browser: Browser, turns_page: Path) -> None:
    with opened(browser, turns_page) as page:
        page.emulate_media(media="print")
        assert page.locator("#candidate-search").is_hidden()
        assert page.locator(OPENERS).count() == sum(map(len, EPISODES.values()))
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_many_rows_come_a_few_at_a_time(browser: Browser, recorded: Recorded, tmp_path: Path) -> None:
    lines = recorded.results.read_text().splitlines()
    several = "".join(line.replace('"id": "', f'"id": "{copy}/', 1) + "\n" for copy in range(100) for line in lines)
    (tmp_path / "many.jsonl").write_text(several)
    with opened(browser, made(tmp_path / "many.jsonl", "-o", tmp_path / "many.html"), PHONE) as page:
        assert page.locator(OPENERS).count() == 25
        page.locator("#candidate-more").click()
        assert page.locator(OPENERS).count() == 525
        assert page.locator("#candidate-more").inner_text() == f"Show 500 more of {100 * len(lines) - 525}"
        page.locator("#candidate-outcome").select_option(label="REJECTED (100)")
        assert page.locator(OPENERS).count() == 25
        assert overflow(page) == []


def test_a_listing_has_the_same_candidates(browser: Browser, recorded: Recorded, tmp_path: Path) -> None:
    with opened(browser, made(recorded.listing, "-o", tmp_path / "listing.html")) as page:
        assert Counter(column(page, "outcome")) == Counter(OUTCOMES.values())


def test_differences_are_the_fewest(browser: Browser, turns_page: Path) -> None:
    chance = random.Random(7)
    texts = [["\n".join(chance.choices("abc", k=chance.randrange(1, 12))) for _ in "ab"] for _ in range(300)]
    texts += [["", "a"], ["a", ""], ["", ""], ["a\nb", "a\nb"]]
    with opened(browser, turns_page) as page:
        for (a, b), rows in zip(
            texts, page.evaluate("(texts) => texts.map(([a, b]) => differences(a, b))", texts), strict=True
        ):
            assert [text for sign, _, _, text in rows if sign != "+"] == a.split("\n")
            assert [text for sign, _, _, text in rows if sign != "-"] == b.split("\n")
            assert [number for sign, number, _, _ in rows if sign != "+"] == list(range(1, len(a.split("\n")) + 1))
            assert sum(sign == " " for sign, *_ in rows) == longest_common(a.split("\n"), b.split("\n")), (a, b)
        unlike = page.evaluate(
            """() => { const text = (name) => Array.from({ length: 20000 }, (_, number) => name + number).join("\\n");
                       const begun = performance.now(), rows = differences(text("a"), text("b"));
                       return [rows.length, performance.now() - begun]; }"""
        )
        assert unlike[0] == 40_000
        assert unlike[1] < 5000, "texts that have nothing in common are given up on, not compared for minutes"


def longest_common(a: list[str], b: list[str]) -> int:
    """Return the length of the longest common subsequence, by the textbook algorithm."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, left in enumerate(a, start=1):
        for j, right in enumerate(b, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if left == right else max(table[i - 1][j], table[i][j - 1])
    return table[-1][-1]
