"""The browser of these tests: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


# For one file at a time: as long as playwright runs, nothing else of the process may run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser; contexts are the caller's."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: `make setup` installs it")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: `scripts/install_system.sh test` installs Debian's")
    with sync_api.sync_playwright() as playwright:
        # Root, as in a container, may only start it without its own sandbox; it opens our own pages alone.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of desktop size that waits as long as the file's `PATIENCE_MS`; its folder of screenshots is there."""
    request.module.SHOTS.mkdir(exist_ok=True)
    with browser.new_context(viewport={"width": 1440, "height": 1000}) as context:
        opened = context.new_page()
        opened.set_default_timeout(request.module.PATIENCE_MS)
        opened.set_default_navigation_timeout(request.module.PATIENCE_MS)
        yield opened
