"""A real browser that looks at pages: Chromium, headless, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NARROW, WIDE = 360, 1280
_GRAVE = ("serious", "critical")


@dataclass(slots=True)
class Looker:
    """A page of a browser at a server, and what was wrong while it was looked at."""

    page: Page
    server: str
    wrong: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note errors of the console, and requests to another host."""
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))

    def _note(self, url: str) -> None:
        if not url.startswith(self.server):
            self.wrong.append(f"a request to {url}")

    def open(self, path: str) -> None:
        """Open a page."""
        self.page.goto(self.server + path)

    def look(self, path: str) -> list[str]:
        """Open a page, and return all that is wrong with it."""
        self.open(path)
        return self.find_faults() + self.wrong

    def find_faults(self) -> list[str]:
        """Return what is wrong with the page at both widths and in both themes: for people with a screen reader, a
        keyboard or a narrow screen.
        """
        found = list[str]()
        for theme in ("light", "dark"):
            self.page.emulate_media(color_scheme=theme)
            for width in (WIDE, NARROW):
                self.page.set_viewport_size({"width": width, "height": 800})
                grave = [each for each in Axe().run(self.page).response["violations"] if each["impact"] in _GRAVE]
                nodes = [(each["id"], node["html"][:200]) for each in grave for node in each["nodes"][:2]]
                found += [f"{theme} {width}: {name}: {html}" for name, html in nodes]
                if (wide := self.page.evaluate("document.documentElement.scrollWidth")) > width:
                    found.append(f"{theme} {width}: the page is {wide} wide")
        return found


@contextmanager
def browse(server: str) -> Iterator[Looker]:
    """Open a browser at a server."""
    with sync_playwright() as driver:
        browser: Browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            looker = Looker(browser.new_page(), server)
            looker.watch()
            yield looker
        finally:
            browser.close()
