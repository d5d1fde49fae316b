"""Make the pictures of the documents: a new project, run by Dagster and looked at in Chromium.

Run by `make pictures`; `python -m examples.pictures calendar why` makes only these. A page that no longer shows what a
picture is about ends it with an error.
"""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection, connect

from feed_assets.clock import SystemClock
from feed_assets.engines.spark.supervised import SupervisedProcess

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
WIDTH = 1280
PATIENCE_SECONDS = 600
ASSET = "/assets/primary/daily-revenue?view="
RUNS = "{runsOrError {... on Runs {results {runId status jobName}}}}"
MAKING = "return orders.groupBy"
MORE_COLUMNS = '.withColumn("currency", F.lit("EUR"))'


@dataclass(slots=True)
class Page:
    """A page of a browser."""

    connection: ClientConnection
    base: str
    only: tuple[str, ...] = ()
    _calls: int = field(default=0)

    def take(self, name: str, path: str, shows: str, *, click: str = "", height: int = 800) -> None:
        """Take a picture of a page that shows a text, after a click on the button or link with another text."""
        if self.only and name not in self.only:
            return
        self.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=path if "://" in path else self.base + path)
        if click:
            button = f"[...document.querySelectorAll('a, button')].find(each => each.innerText.trim() == '{click}')"
            wait_for(f"{click!r} on {path}", lambda: self.evaluate(f"(found => found && (found.click(), 1))({button})"))
        wait_for(f"{shows!r} on {path}", lambda: shows in str(self.evaluate("document.body.innerText")))
        time.sleep(2)  # what comes into view is drawn
        picture = self.call("Page.captureScreenshot", format="png")
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(str(picture["data"])))

    def evaluate(self, expression: str) -> object:
        """Return the value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]
        return result.get("value") if isinstance(result, dict) else None

    def call(self, method: str, **parameters: object) -> dict[str, object]:
        """Call a method of the DevTools protocol."""
        self._calls += 1
        self.connection.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while (answer := json.loads(self.connection.recv(60))).get("id") != self._calls:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])


def main(*only: str) -> int:
    """Make all pictures, or those of some names; return 0."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="feed-assets-") as folder:
        project = Path(folder) / "shop"
        feed_assets(project.parent, "init", "shop")
        prepare(project)
        with dagster(project) as base, browser(Path(folder) / "browser", base) as page:
            page.only = only
            take_pictures(page, project)
    for picture in sorted(PICTURES.glob("*.png")):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")
    return 0


def prepare(project: Path) -> None:
    """Let the project show rows, and let its function decide the columns of its feed."""
    settings, feed = project / "feed_assets.yaml", project / "entities" / "daily_revenue.yaml"
    settings.write_text(settings.read_text("utf-8") + "previews: true\n", "utf-8")
    feed.write_text(re.sub(r"^schema: .*\n", "", feed.read_text("utf-8"), flags=re.MULTILINE), "utf-8")


def take_pictures(page: Page, project: Path) -> None:
    """Take the pictures of three days and of a day that waits; then let its data arrive, with another column."""
    today = SystemClock().now().date()
    run = str(wait_for("a run that has succeeded", lambda: find_run(page.base)))
    page.take("graph", "/locations/__repository__@shop/asset-groups/primary/lineage", "75% filled", height=480)
    page.take("asset", f"{ASSET}overview", "Source code", height=860)
    if not page.only:
        check_links(page, project)
    page.take("columns", f"{ASSET}overview", "of orders.", height=1240)
    page.take(
        "partition", f"{ASSET}partitions&partition={today - timedelta(days=3)}", "feed_assets/preview", height=980
    )
    page.take("run", f"/runs/{run}?logs=00Z%20", "published revenue", height=960)
    sensor = "/locations/__repository__@shop/sensors/arrival_primary"
    page.take("sensor", sensor, "oldest waiting instance", click="0 runs requested", height=440)
    with pages(project) as server:
        address = f"{server}/ui/feed/daily-revenue/calendar?year={today.year}"
        page.take("calendar", address, "available 3", height=640)
        page.take("why", f"{server}/ui/process/daily-revenue/at/{today}T00:00Z", "because feed orders", height=560)
    if page.only and "check" not in page.only:
        return
    add_column(project)
    land(project, f"{today - timedelta(days=1)}", f"{today}")
    wait_for("the run of today", lambda: find_run(page.base) not in (None, run))
    page.take("check", f"{ASSET}checks", "currency (string) was added", height=600)


def check_links(page: Page, project: Path) -> None:
    """Raise an error unless each link to source code leads to a line of a file of the project."""
    links = page.evaluate("[...document.querySelectorAll('a[href^=\"vscode:\"]')].map(each => each.href)")
    assert isinstance(links, list), links
    for link in links:
        file, _, line = unquote(str(link)).removeprefix("vscode://file/").rpartition(":")
        text = Path(file).read_text("utf-8").splitlines()[int(line) - 1]
        assert Path(file).is_relative_to(project), link
        print(f"{file}:{line}: {text}")
    assert len(links) == 3, links


def add_column(project: Path) -> None:
    """Let the function of the project write another column."""
    code = project / "shop" / "jobs.py"
    code.write_text(re.sub(rf"({MAKING}.*)", rf"\1{MORE_COLUMNS}", code.read_text("utf-8")), "utf-8")


def land(project: Path, source: str, day: str) -> None:
    """Let the orders of a day arrive: those of another."""
    orders = project / "data" / "orders"
    (orders / day).mkdir()
    shutil.copy(orders / source / "orders.csv", orders / day)
    (orders / day / "_SUCCESS").touch()
    feed_assets(project, "feed", "notify", "orders", day)


def feed_assets(folder: Path, *arguments: str) -> None:
    """Run a command in a folder."""
    subprocess.run([sys.executable, "-m", "feed_assets", *arguments], cwd=folder, check=True)


def find_run(base: str) -> str | None:
    """Return the id of the newest run of assets that has succeeded."""
    request = Request(f"{base}/graphql", json.dumps({"query": RUNS}).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        runs = json.load(response)["data"]["runsOrError"]["results"]
    found = [each["runId"] for each in runs if each["status"] == "SUCCESS" and each["jobName"] == "__ASSET_JOB"]
    return found[0] if found else None


@contextmanager
def dagster(project: Path) -> Iterator[str]:
    """Run `dagster dev` in a project, and yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port)]
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    with (
        (project / "dagster.log").open("wb") as log,
        SupervisedProcess(command, env=environment, cwd=project, output=log),
    ):
        base = f"http://127.0.0.1:{port}"
        wait_for("Dagster", lambda: _answers(f"{base}/server_info"))
        yield base


@contextmanager
def pages(project: Path) -> Iterator[str]:
    """Run `feed-assets serve` in a project, and yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "feed_assets", "serve", "--port", str(port)]
    with (
        (project / "server.log").open("wb") as log,
        SupervisedProcess(command, env=os.environ, cwd=project, output=log),
    ):
        base = f"http://127.0.0.1:{port}"
        wait_for("the server", lambda: _answers(f"{base}/health"))
        yield base


@contextmanager
def browser(folder: Path, base: str) -> Iterator[Page]:
    """Run Chromium without a window, and yield its page."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit(f"no browser: install one of {', '.join(CHROMIUM)}")
    port = free_port()
    flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", f"--remote-debugging-port={port}"]
    command = [program, *flags, f"--user-data-dir={folder}", "about:blank"]
    with (
        folder.with_suffix(".log").open("wb") as log,
        SupervisedProcess(command, env=os.environ, cwd=folder.parent, output=log),
    ):
        pages = wait_for("the browser", lambda: _answers(f"http://127.0.0.1:{port}/json"))
        (address,) = (each["webSocketDebuggerUrl"] for each in json.loads(str(pages)) if each["type"] == "page")
        with connect(address, max_size=None) as connection:
            yield Page(connection, base)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _answers(url: str) -> str | None:
    try:
        with urlopen(url, timeout=5) as response:
            return str(response.read().decode())
    except OSError:
        return None


def wait_for(what: str, look: Callable[[], object]) -> object:
    """Return what is found as soon as it is true.

    Raises:
        TimeoutError: it was not found in time.
    """
    for _ in range(PATIENCE_SECONDS):
        if found := look():
            return found
        time.sleep(1)
    raise TimeoutError(f"no {what} in {PATIENCE_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
