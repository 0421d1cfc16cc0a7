"""Opens pages in a headless Chromium, without errors and network requests."""

import os
import shutil
from contextlib import contextmanager

import pytest


def _chromium():
    names = "chromium", "chromium-browser", "google-chrome"
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def open_page(path, width, scripts=True):
    """Yields the page of a file in a window of a width; skips the test without Chromium.

    Fails if the page logs an error or a warning, opens a dialog or requests another address.
    """
    if _chromium() is None:
        pytest.skip("needs chromium, or google-chrome, on the PATH")
    from playwright.sync_api import sync_playwright

    problems = []
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=_chromium(), args=sandbox)
        try:
            size = {"width": width, "height": 900}
            page = browser.new_context(java_script_enabled=scripts, viewport=size).new_page()
            page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
            page.on(
                "request",
                lambda request: (
                    problems.append(request.url) if request.url != path.as_uri() else None
                ),
            )
            page.goto(path.as_uri())
            yield page
        finally:
            browser.close()
    assert not problems, problems


def wait_for_charts(page, n):
    """Waits until the scripts have drawn `n` charts."""
    page.wait_for_function(f"document.querySelectorAll('figure.drawn svg.marks').length === {n}")
