"""The release page: the figures of the report and no others, in both languages, readable by everybody, asking for
nothing."""

from __future__ import annotations

import re
from collections import Counter
from html import escape, unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from heldout_rows import card
from report_world import BODY, CURVES, INCUMBENT, SFT, WORDS, body

from ratchet.evaluation.html import article, languages, release_page
from ratchet.evaluation.language import ENGLISH
from ratchet.evaluation.report import FIGURES, pair_cells, report
from ratchet.evaluation.spanish import spanish
from ratchet.evaluation.style import STYLE

PAGE = release_page(BODY, CURVES)


def text_of(page: str) -> str:
    """What a reader sees, one space between words."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S))).split())


def in_english(page_body: dict[str, Any] = BODY) -> str:
    return article(page_body, CURVES, ENGLISH)


def test_the_page_shows_every_figure_of_every_policy() -> None:
    shown = text_of(in_english())
    for _, figure in FIGURES:
        for policy in BODY["policies"]:
            assert figure(policy) in shown


def test_the_spanish_page_shows_the_same_figures() -> None:
    language = spanish()
    shown = text_of(article(BODY, CURVES, language))
    for label, figure in FIGURES:
        if label != "method":
            for policy in BODY["policies"]:
                assert language.say(figure(policy)) in shown
    assert "+21,6 puntos [+18,2; +25,2]" in shown
    assert not re.search(r"\d\.\d+ (%|puntos|USD|s)\b", shown)


def test_zero_accepted_is_words_in_every_place_and_language() -> None:
    english, found = text_of(in_english()), spanish().say(WORDS)
    other = text_of(article(BODY, CURVES, spanish()))
    assert english.count(WORDS) == other.count(found) >= 8
    for shown in (english, other):
        assert "nan" not in shown.lower().split()
        assert not re.search(r"(?<![\d.,])0[.,]00 USD", shown)


def test_a_figure_that_cannot_be_computed_is_words_in_the_plots() -> None:
    void = {"not_computable": "no valid episode"}
    changed = {**BODY["policies"][1], "acceptance": dict.fromkeys(("value", "low", "high"), void)}
    page = in_english({**BODY, "policies": [BODY["policies"][0], changed, BODY["policies"][2]]})
    plot = page[page.index("<svg") : page.index("</svg>")]
    assert "no valid episode" in plot
    assert plot.count("<circle") == 2


def test_it_shows_what_the_terminal_shows_of_a_pair() -> None:
    shown = text_of(in_english())
    (pair,) = BODY["comparisons"]
    assert pair_cells(pair)[0] == "sft over dpo"
    for text in pair_cells(pair):
        assert text in shown


class Tags(HTMLParser):
    """Collects the tags, everything that a browser would fetch, ids, and what a heading of a table is missing."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.fetched: list[str] = []
        self.ids: Counter[str] = Counter()
        self.bare: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags[tag] += 1
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.ids.update([str(found["id"])] if "id" in found else [])
        wanted = {"th": "scope", "svg": "aria-label", "article": "lang", "html": "lang", "nav": "aria-label"}
        if tag in wanted and not found.get(wanted[tag]):
            self.bare.append(tag)


def test_it_fetches_nothing_and_runs_nothing() -> None:
    tags = Tags(PAGE)
    assert {link for link in tags.fetched if not link.startswith("#")} == set()
    assert not tags.tags.keys() & {"script", "link", "iframe", "img", "object", "form"}
    assert "url(" not in PAGE
    assert "@import" not in PAGE


def test_its_links_lead_somewhere_and_no_id_is_double() -> None:
    tags = Tags(PAGE)
    assert {link.removeprefix("#") for link in tags.fetched} <= tags.ids.keys()
    assert len(tags.fetched) == 2 * 11
    assert max(tags.ids.values()) == 1


def test_tables_have_headings_and_plots_have_words() -> None:
    tags = Tags(PAGE)
    assert tags.bare == []
    assert tags.tags["svg"] >= 2 * 7
    for row in re.findall(r"<tr>(.*?)</tr>", PAGE, re.S):
        assert row.startswith(("<th scope=", "<td></td><th scope="))


def contrast(one: str, other: str) -> float:
    """Ratio of two colours by WCAG 2.2, section 1.4.3."""

    def luminance(colour: str) -> float:
        digits = colour.lstrip("#")
        whole = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
        parts = [int(whole[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_what_is_behind_them(scheme: int) -> None:
    block = re.findall(r":root \{(.*?)\}", STYLE, re.S)[scheme]
    colours = dict(re.findall(r"--(\w+): (#\w+)", block))
    behind = [colours[name] for name in ("bg", "card", "soft")]
    for name in ("fg", "muted", "good", "bad", "warn", "link"):
        assert min(contrast(colours[name], one) for one in behind) >= 4.5, name
    for name in (f"c{at}" for at in range(6)):
        assert contrast(colours[name], colours["card"]) >= 3, name


def test_it_escapes_what_others_named() -> None:
    assert "<wrong>" not in PAGE
    assert "&lt;wrong&gt; &amp; return" in PAGE


@pytest.mark.parametrize("state", ["decided", "undecided"])
def test_it_leads_with_the_decision(state: str) -> None:
    page = in_english(BODY if state == "decided" else body(decided=False))
    lead = "Reject sft" if state == "decided" else "No decision"
    assert page.index(lead) < page.index("<svg")


def test_rules_that_did_not_pass_come_first_and_none_is_left_out() -> None:
    page = in_english()
    rules = BODY["decision"]["rules"]
    places = {rule["name"]: page.index(f"<strong>{rule['name'].replace('_', ' ')}</strong>") for rule in rules}
    failed = [places[rule["name"]] for rule in rules if rule["passed"] is not True]
    assert failed
    assert max(failed) < min(places[rule["name"]] for rule in rules if rule["passed"])
    assert all(escape(rule["reason"]) in page for rule in rules)


def test_the_incumbent_may_be_called_anything() -> None:
    shown = text_of(in_english())
    assert "sft solves 220 of 400 held-out tasks, the incumbent production-3 solves 101." in shown
    assert "baseline" not in {policy["name"] for policy in BODY["policies"]}


def test_what_a_simulation_made_says_so() -> None:
    page = in_english()
    judge = page[page.index('id="en-judge"') : page.index('id="en-openings"')]
    assert "32 simulated labels" in judge
    assert ">simulated</span>" in judge
    lineage = text_of(page[page.index('id="en-lineage"') : page.index('id="en-digests"')])
    assert "simulated" not in lineage.replace("1,900 episodes of the scripted agent expert simulated", "")


def test_first_logs_of_scripted_agents_are_simulated() -> None:
    own = {**BODY["lineage"], "ancestors": []}
    shown = text_of(in_english({**BODY, "lineage": own}))
    assert "1,900 episodes of the scripted agent expert simulated" in shown


def test_the_lineage_goes_down_to_grants_and_says_which_have_ended_since() -> None:
    page = text_of(in_english())
    assert "grant logs/train_sft active and now withdrawn , 900 records" in page
    assert "grant other/passed_on withdrawn" in page
    assert "grant first/train_sft active , 7 records" in page
    places = [page.index(what) for what in ("version sft", "policy sft", "policy first", "older", "grant first/")]
    assert places == sorted(places)


def test_openings_are_listed_with_who_and_when() -> None:
    page = text_of(in_english())
    listed = page[page.index("2 candidates have been judged on these tasks.") :]
    assert re.search(r"1 sft [0-9a-f]{12} repair-1 2026-01-02 03:04 UTC ada", listed)
    assert re.search(r"2 elsewhere [0-9a-f]{12} repair-1 2026-01-02 03:04 UTC ada", listed)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0123", "Compared with the version in production: production-3 (abcd)"),
        (None, "Compared with the baseline: nothing was in production."),
    ],
)
def test_it_says_what_the_candidates_were_compared_with(version: str | None, told: str) -> None:
    held = {**BODY["lineage"]["incumbent"], "version": version}
    assert told in text_of(in_english({**BODY, "lineage": {**BODY["lineage"], "incumbent": held}}))


@pytest.mark.parametrize("code", [language.code for language in languages()])
def test_it_opens_in_the_language_that_was_asked_for(code: str) -> None:
    page = release_page(BODY, CURVES, code)
    assert f'<html lang="{code}">' in page
    assert re.findall(r'id="language-(\w+)" checked', page) == [code]
    assert page.count("<article") == len(languages())


def test_an_incumbent_alone_and_free_training_make_a_page() -> None:
    alone = {**BODY, "policies": BODY["policies"][:1], "comparisons": []}
    assert "this is the incumbent" in release_page(alone)
    free = report(
        experiment="repair",
        manifest_digest="manifest",
        split_lock={"digest": "lock", "train": 600, "validation": 160, "heldout": 400},
        scorecards=[card(INCUMBENT, None), card(SFT, INCUMBENT)],
    )
    assert free["policies"][1]["cost"]["break_even"] == 0.0
    assert "where lines cross" in release_page(free, {"reward": {}})


def test_a_judge_without_a_calibration_is_words() -> None:
    page = in_english({**BODY, "judge": {"not_computable": "the judge was not calibrated"}})
    assert "the judge was not calibrated" in page
