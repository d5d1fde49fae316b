"""What CDAP's searches find, again by its own path."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from feed_assets.entities.errors import MetadataRefusedError
from tests.catalog.described import Described
from tests.conformance import test_cdap_search
from tests.conformance.test_cdap_search import RUNNERS, Case
from tests.server.paths import serve_paths

__all__ = ["RUNNERS"]
TABLE = "cdap_search.json"
NAMES = {"kinds": "target", "cursors": "cursorRequested"}


class ServedDescribed(Described):
    """Entities that are searched by CDAP's path."""

    def page(self, text: str = "*", **more: Any) -> Any:
        given = {NAMES.get(name, name): value for name, value in more.items() if value is not None}
        given |= {"cursorRequested": "true"} if more.get("cursors") else {}
        client = serve_paths(lambda: self.lifecycle.context(self.lifecycle.now))
        answer = client.get("/v3/namespaces/default/metadata/search", params={"query": text, **given})
        if answer.status_code == 400:
            raise MetadataRefusedError(entity="search", reason="refused", next_step=answer.text)
        document = answer.json()
        assert document["cursor"] == next(iter(document["cursors"]), None)
        results = [
            SimpleNamespace(
                kind=each["entity"]["type"],
                name=[*each["entity"]["details"].values()][-1],
                metadata=each["metadata"],
            )
            for each in document["results"]
        ]
        return SimpleNamespace(results=results, cursors=document["cursors"])


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    world = test_cdap_search.world

    @contextmanager
    def serve(*entities: Any) -> Iterator[Described]:
        with world(*entities) as found:
            yield ServedDescribed(found.lifecycle)

    monkeypatch.setattr(test_cdap_search, "world", serve)


def test_each_case_of_the_table_holds_by_http(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)
