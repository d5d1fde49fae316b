"""Requests with one wild value each, for every parameter of every operation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.testclient import TestClient

from feed_assets.operation import Operation

KNOWN: Mapping[str, Any] = {
    "cluster": "primary",
    "column": "url",
    "entity": "feed/clicks",
    "event": 1,
    "feed": "clicks",
    "instance": "2013-11-03T05:00Z",
    "key": "steward",
    "kind": "process",
    "name": "counting",
    "names": ["counting"],
    "new": "taps",
    "path": "/clicks/2013-11-03/05",
    "process": "counting",
    "properties": {"a": "b"},
    "switch": "status",
    "to": "feed/views",
}
"""What the project of the golden files has, by the names of parameters."""
_OF: Mapping[str, Mapping[str, Any]] = {
    "batch init": {"process": "fetch"},
    "hold add": {"name": "h", "feed": ["clicks"], "end": "2014-01-01T00:00Z"},
    "lineage group": {"kind": "cluster", "name": "primary"},
}
_FAR = ("0001-01-01T00:00Z", "9999-12-31T23:59Z", "10000-01-01T00:00Z", "0001-01", "9999-12", "9999-12-31T23:59-23:59")
_SHIFTS = ("now-9999999999999d", "now+99999999d", "days(999999999999)", "months(99999999)", "days(0)", "1e309")
_NUMBERS = ("9" * 400, str(2**63 - 1), str(2**53), "-1", "0")
_TEXTS = (
    "",
    "\0",
    "a\0b",
    "é\u202e\n\x1b[31m",
    "x" * 20_000,
    "%",
    "*",
    "a:b*",
    "'; --",
    "[",
    "{}",
    '{"a":[',
    "=",
    "a=",
    ",",
)
IN_QUERY: Sequence[Any] = (
    *_FAR,
    *_SHIFTS,
    *_NUMBERS,
    *_TEXTS,
    "feed",
    "CLICKS",
    "clicks,counting",
    "a.b.c",
    ["a", "a"],
)
IN_JSON: Sequence[Any] = (
    *IN_QUERY,
    *("\ud800", True, None, -1, 0, 2**53, 2**63, 10**40, 1e400, float("nan"), 1.5),
    *([], [[1]], ["\0"], {"a": 1}, {"\0": "x"}, {"a": {"b": [None]}}, {"": ""}, {"\ud800": "x"}),
)


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks a server what its document describes."""

    client: TestClient
    document: Any

    def describe(self, route: Operation) -> Any:
        """Return the description of a route."""
        return self.document["paths"][route.path][route.method.lower()]

    def iter_parameters(self, route: Operation) -> Iterator[tuple[str, bool]]:
        """Yield the parameters of a route, and whether they are required."""
        told = self.describe(route)
        yield from ((each["name"], each["required"]) for each in told.get("parameters", ()))
        if (body := self._body_of(route)) is not None:
            yield from ((name, name in body["schema"]["required"]) for name in body["schema"]["properties"])

    def _body_of(self, route: Operation) -> Any:
        return self.describe(route).get("requestBody", {}).get("content", {}).get("application/json")

    def takes_json(self, route: Operation) -> bool:
        """Return whether the parameters are the body."""
        return self._body_of(route) is not None

    def ask(self, route: Operation, given: Mapping[str, Any], content: bytes = b"") -> Response:
        """Ask with what the project has, but for what is given."""
        name = route.name
        needed = {each: KNOWN.get(each, "x") for each, needs in self.iter_parameters(route) if needs}
        wanted = {**needed, **_OF.get(name, {}), **given}
        if self.takes_json(route):
            return self.client.post(route.path, content=json.dumps(wanted))
        query = {
            key: [f"{a}={b}" for a, b in value.items()] if isinstance(value, dict) else value
            for key, value in wanted.items()
            if value is not None
        }
        return self.client.request(route.method, route.path, params=query, content=content)
