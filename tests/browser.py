"""Pages in a headless Chromium, which may show no error and ask no network."""

import os
import shutil
from contextlib import contextmanager

import pytest


def _chromium():
    names = "chromium", "chromium-browser", "google-chrome"
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def opened(path, width, scripts=True):
    """The page of a file in a window of that width; skips where there is no Chromium."""
    if _chromium() is None:
        pytest.skip("needs chromium, or google-chrome, on the PATH")
    from playwright.sync_api import sync_playwright

    wrong = []
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=_chromium(), args=sandbox)
        try:
            size = {"width": width, "height": 900}
            page = browser.new_context(java_script_enabled=scripts, viewport=size).new_page()
            page.on("console", lambda said: wrong.append(f"{said.type}: {said.text}"))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
            page.on(
                "request",
                lambda asked: wrong.append(asked.url) if asked.url != path.as_uri() else None,
            )
            page.goto(path.as_uri())
            yield page
        finally:
            browser.close()
    assert not wrong
