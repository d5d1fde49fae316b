"""Dagster's pages behind the guard, of the command itself, in a real Chromium."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from feed_assets.log.audit import Audit
from tests.access.test_dagster import LAUNCH, PARTITION, lay_dagster
from tests.orchestration.dagster_home import wait_until
from tests.server import browser
from tests.server.browser import Looker, browse

TOTALS = "/assets/here/totals"
PATHS = (
    "/",
    "/ui",
    "/graphql",
    "/runs",
    "/server_info",
    "/logs/x.out",
    "/metrics",
    "/docs",
    "/api/v1/entity/list",
    TOTALS,
)
ASK = """async told => {
  const headers = {"Content-Type": "application/json"}
  return await (await fetch("/graphql", {method: "POST", headers, body: JSON.stringify(told)})).json()
}"""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve with Dagster in a process of its own; yield the address."""
    command = [sys.executable, "-W", "ignore", "-m", "feed_assets", "serve", "--with-dagster", "--port", "0"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[1]
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def look(looker: Looker, bearer: str) -> None:
    """Open the page of an asset; its log-in leads back to it."""
    looker.page.context.clear_cookies()
    looker.open(TOTALS)
    looker.page.fill("input[name=token]", bearer)
    looker.page.keyboard.press("Enter")
    looker.page.wait_for_url(f"{looker.server}{TOTALS}**")
    expect(looker.page.get_by_text("Owners")).to_be_visible(timeout=60_000)


@pytest.mark.drill
@pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no Chromium")
def test_ann_materializes_hers_and_bob_who_may_not_sees_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        lay_dagster(tmp_path, monkeypatch) as (_, database, bearers),
        serving(tmp_path) as url,
        browse(url) as looker,
    ):
        assert {requests.get(f"{url}{path}", timeout=60).status_code for path in PATHS} == {401}
        assert requests.get(f"{url}/health", timeout=60).status_code == 200
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"{url.replace('http', 'ws')}/graphql", subprotocols=["graphql-ws"])  # type: ignore[list-item]

        def find_told() -> dict[str, Any]:
            with database.read() as connection:
                newest = Audit(connection).newest(100)
            return {each.author: each for each in newest if each.action.startswith("dagster launch")}

        button = looker.page.locator("button:has-text('Materialize')").first
        look(looker, bearers["bob"])
        expect(button).to_be_disabled()
        assert {"ann", "etl"} <= {*looker.page.inner_text("body").split()}
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "located.py",
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": ["here", "totals"]}],
        }
        tags = {"tags": [{"key": "dagster/partition", "value": PARTITION}]}
        forged = {"p": {"selector": selector, "mode": "default", "executionMetadata": tags}}
        answer = looker.page.evaluate(ASK, {"query": LAUNCH, "variables": forged})
        assert answer["data"]["launchRun"]["__typename"] == "UnauthorizedError"
        look(looker, bearers["ann"])
        expect(button).to_be_enabled(timeout=60_000)
        button.click()
        looker.page.get_by_role("button", name="Latest", exact=True).click()
        looker.page.get_by_role("button", name="Launch").click()
        wait_until(lambda: "ann" in find_told(), lambda: looker.page.inner_text("body"))
        told = find_told()
        assert {who: (each.target, "refused" in each.details) for who, each in told.items()} == {
            "ann": ("process 'counts'", False),
            "bob": ("process 'counts'", True),
        }
        assert looker.wrong == []
