"""The release page in a real browser, cut off from every network: on a screen, a telephone and paper, light and dark,
in both languages, switched without a script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from report_world import BODY, CURVES

from ratchet.evaluation.html import release_page

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
A4_PX = {"width": 703, "height": 1000}
"""What is left of A4 between the margins, in CSS pixels."""
DARK, WHITE, INK = "rgb(20, 23, 26)", "rgb(255, 255, 255)", "rgb(29, 33, 37)"
OVERFLOWING = """() => [...document.querySelectorAll('article *')]
    .filter(one => one.checkVisibility() && !one.closest('.wide') && !one.closest('svg'))
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(one => one.outerHTML.slice(0, 80))"""
CUT = """() => [...document.querySelectorAll('svg')].filter(one => one.checkVisibility()).flatMap(plot =>
    [...plot.querySelectorAll('text')].filter(text => {
        const [inner, outer] = [text.getBoundingClientRect(), plot.getBoundingClientRect()];
        return inner.left < outer.left - 2 || inner.right > outer.right + 2 || inner.bottom > outer.bottom + 2;
    }).map(text => text.textContent))"""
SMALLEST = """() => Math.min(...[...document.querySelectorAll('svg text')].filter(one => one.checkVisibility())
    .map(text => text.getBoundingClientRect().height))"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_text(release_page(BODY, CURVES), encoding="utf-8")
    return page


def opened(context: Any, file: Path, language: str = "en") -> Any:
    """The page in a context, in a language, which asked for itself and nothing else."""
    asked: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.locator(f"label[for=language-{language}]").click()
    assert asked == [file.as_uri()]
    return page


@pytest.mark.parametrize("language", ["en", "es"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_and_is_legible_without_a_network(
    browser: Any, file: Path, size: dict[str, int], scheme: str, language: str
) -> None:
    with browser.new_context(viewport=size, color_scheme=scheme, offline=True) as context:
        page = opened(context, file, language)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert page.evaluate(OVERFLOWING) == []
        assert page.evaluate(CUT) == []
        assert page.evaluate(SMALLEST) >= 11
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == DARK) == (scheme == "dark")
        shown = page.inner_text("main")
        assert ("Rechazar sft" in shown, "Reject sft" in shown) == (language == "es", language == "en")


def test_the_language_is_switched_without_a_script(browser: Any, file: Path) -> None:
    with browser.new_context(java_script_enabled=False, offline=True) as context:
        page = opened(context, file, "es")
        assert page.locator("article[lang=es]").is_visible()
        assert not page.locator("article[lang=en]").is_visible()
        page.locator("label[for=language-en]").click()
        assert page.locator("article[lang=en]").is_visible()
        assert not page.locator("article[lang=es]").is_visible()


def test_the_language_is_switched_by_the_keyboard(browser: Any, file: Path) -> None:
    with browser.new_context(offline=True) as context:
        page = opened(context, file)
        page.locator("#language-en").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.locator("article[lang=es]").is_visible()


@pytest.mark.parametrize("language", ["en", "es"])
def test_on_paper_it_is_light_whole_and_uncut(browser: Any, file: Path, language: str) -> None:
    with browser.new_context(viewport=A4_PX, color_scheme="dark", offline=True) as context:
        page = opened(context, file, language)
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == WHITE
        assert page.evaluate("getComputedStyle(document.body).color") == INK
        assert page.evaluate("document.documentElement.scrollWidth") <= A4_PX["width"]
        assert not page.locator("nav").first.is_visible()
        assert not page.locator(f"label[for=language-{language}]").is_visible()
        folded = page.locator(f"article[lang={language}] details:not(.screen) > *:not(summary)").all()
        assert len(folded) >= 3
        assert all(one.is_visible() for one in folded)
        heights = page.evaluate(
            "() => [...document.querySelectorAll('figure')].filter(one => one.checkVisibility())"
            ".map(one => [one.getBoundingClientRect().height, getComputedStyle(one).breakInside])"
        )
        assert heights
        assert all(height < A4_PX["height"] and rule == "avoid" for height, rule in heights)
        assert page.evaluate(CUT) == []
        pages = re.findall(rb"/Type ?/Page\b", page.pdf(prefer_css_page_size=True))
        assert 5 <= len(pages) <= 20
