"""Headless Chromium, for tests that open a page as a reader would."""

import contextlib
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (400, 1600)


@contextlib.contextmanager
def chromium():
    """A browser of playwright. Skips the test if the browser or playwright is missing."""
    if not CHROMIUM:
        pytest.skip("pages: no chromium (Debian: apt install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.skip("pages: no playwright (pip install playwright)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page opened from a file.

    messages: of its console, and uncaught errors. requests: addresses asked for, its own aside.
    """

    def __init__(self, browser, path, width=1600, scheme="light"):
        self.messages, self.requests = [], []
        self.page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.requests.remove(path.as_uri())

    def show(self, width, scheme):
        """Show it in a window of this width, "light" or "dark"."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)

    def overflow(self):
        """Pixels by which the page is wider than its window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def screenshot(self, path):
        self.page.screenshot(path=path, full_page=True)
