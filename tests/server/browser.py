"""A real browser that looks at pages: Chromium, headless, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.drills import sized

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NARROW, WIDE = 360, 1280
_GRAVE = ("serious", "critical")
_LOOKS = sized(
    (("light", WIDE), ("dark", NARROW)), [(theme, width) for theme in ("light", "dark") for width in (WIDE, NARROW)]
)
_OPEN = "document.querySelectorAll('details').forEach(each => each.open = true)"
_LIST_STOPS = """[...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
    .filter(each => each.checkVisibility() && getComputedStyle(each).visibility !== 'hidden')
    .map((each, at) => { each.dataset.stop = at; return each.outerHTML.slice(0, 150) })"""
_LOOK_AT_FOCUS = """(() => {
    const it = document.activeElement, style = getComputedStyle(it), box = it.getBoundingClientRect()
    const isDrawn = it.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
    const isThere = box.width > 1 && box.height > 1 && box.bottom > 0 && box.top < innerHeight
    return [Number(it.dataset.stop ?? -1), isDrawn && isThere] })()"""
"""Of what has the focus: which stop it is, and whether a person sees that."""


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
        """Return what is wrong with the page, all of it unfolded, at both widths and in both themes: for people with a
        screen reader, a keyboard or a narrow screen.
        """
        found = list[str]()
        self.page.evaluate(_OPEN)
        for theme, width in _LOOKS:
            self.page.emulate_media(color_scheme=theme)
            self.page.set_viewport_size({"width": width, "height": 800})
            grave = [each for each in Axe().run(self.page).response["violations"] if each["impact"] in _GRAVE]
            nodes = [(each["id"], node["html"][:200]) for each in grave for node in each["nodes"][:2]]
            found += [f"{theme} {width}: {name}: {html}" for name, html in nodes]
            if (wide := self.page.evaluate("document.documentElement.scrollWidth")) > width:
                found.append(f"{theme} {width}: the page is {wide} wide")
        return found

    def walk_by_tab(self, path: str) -> list[str]:
        """Open a page, press `Tab` until it begins anew, and return the links and controls that get no focus, or out of
        their order, or so that nobody sees it.
        """
        self.open(path)
        self.page.evaluate(_OPEN)
        stops: list[str] = self.page.evaluate(_LIST_STOPS)
        unseen, reached = list[str](), list[int]()
        for _ in range(3 * len(stops) + 10):
            self.page.keyboard.press("Tab")
            stop, is_seen = self.page.evaluate(_LOOK_AT_FOCUS)
            if stop in reached:
                break
            reached += [stop] if stop >= 0 else []
            unseen += [] if is_seen or stop < 0 else [f"nobody sees the focus of {stops[stop]}"]
        first = reached.index(0) if 0 in reached else 0  # a field may have the focus from the beginning
        in_order = reached[first:] + reached[:first]
        missed = [f"not reached: {html}" for at, html in enumerate(stops) if at not in reached]
        return missed + unseen + ([f"out of order: {in_order}"] if in_order != sorted(in_order) else [])


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
