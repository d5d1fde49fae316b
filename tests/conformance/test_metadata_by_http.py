"""What CDAP does with the metadata of its entities, again by its own paths."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from feed_assets.entities.metadata import Scope
from tests.conformance import test_metadata
from tests.conformance.test_metadata import APP, DATASET, KINDS, PATHS, RUNNERS, SERVICE, WORKER, Case, Catalog
from tests.server.paths import serve_paths

__all__ = ["RUNNERS"]
TABLE = "metadata.json"
THEIRS = {
    APP: "apps/AppWithDataset",
    DATASET: "datasets/myds",
    SERVICE: "apps/PingService/services/PingService",
    WORKER: "apps/wk1/versions/7",
}


class ServedCatalog(Catalog):
    """The entities of a case, of which everything that has a path in CDAP is asked there."""

    def request(self, line: str, body: object = None) -> tuple[int, Any]:
        found = re.fullmatch(r"(\w+) .*?/(\w+/[\w{}]+)/metadata(.*)", line)
        assert found is not None, line
        return self.send(found[1], PATHS[found[2]], found[3], body)

    def send(self, method: str, path: str, rest: str, body: object = None) -> tuple[int, Any]:
        content = b"" if body is None else json.dumps(body).encode()
        url = f"/v3/namespaces/default/{THEIRS[path]}/metadata{rest}"
        answer = serve_paths(lambda: self.context).request(method, url, content=content)
        if method != "GET" or answer.status_code != 200:
            return answer.status_code, None
        document = answer.json()
        return 200, [_without_entity(each) for each in document] if rest in ("", "?scope=user") else document

    def write(self, path: str, **mutation: Any) -> None:
        if path not in THEIRS or not mutation.keys() <= {"update", "remove"}:
            super().write(path, **mutation)
            return
        for part, said in mutation.get("update", {}).items():
            assert self.send("POST", path, f"/{part}", said)[0] == 200
        for part, names in mutation.get("remove", {}).items():
            assert part in KINDS
            for name in names:
                assert self.send("DELETE", path, f"/{part}/{name}")[0] == 200

    def said(self, path: str, scope: Scope) -> dict[str, Any]:
        if path not in THEIRS:
            return super().said(path, scope)
        (record,) = self.send("GET", path, f"?scope={scope.value.lower()}")[1]
        return _without_entity(record)

    def found(self, query: str) -> list[str]:
        answer = serve_paths(lambda: self.context).get(
            "/v3/namespaces/default/metadata/search", params={"query": query}
        )
        return [[*each["entity"]["details"].values()][-1] for each in answer.json()["results"]]


def _without_entity(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "entity"}


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = test_metadata.catalog

    @contextmanager
    def serve() -> Iterator[Catalog]:
        with catalog() as found:
            yield ServedCatalog(found.lifecycle, found.now)

    monkeypatch.setattr(test_metadata, "catalog", serve)


def test_each_case_of_the_table_holds_by_http(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)
