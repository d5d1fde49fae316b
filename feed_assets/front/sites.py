"""The servers of the colos, as a front asks them: by the operations that commands ask for with `--server`."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from feed_assets.cli.door import CONSOLE
from feed_assets.cli.exit_codes import AWAY, DIFFERENT
from feed_assets.cli.remote import ask_for, on_behalf_of, pack_files, send
from feed_assets.engines.errors import ServiceAwayError, ServiceError
from feed_assets.entities.maps import EMPTY
from feed_assets.loading.entity_files import EntityFile
from feed_assets.masking import remember_unnamed
from feed_assets.operation import Operation
from feed_assets.operation_list import find_operation
from feed_assets.setting_sections import SiteSettings

_AWAKE = 20.0
"""Seconds within which a server answers what is easy."""
_AGAIN = "Give the same command again when it is back: what is done is not done twice."


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operation: its parameters by the names that requests give them, and its files."""

    operation: Operation
    values: Mapping[str, Any] = EMPTY
    files: Sequence[EntityFile] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the server of a colo has told, or why it has not."""

    colo: str
    out: str = ""
    err: str = ""
    exit_code: int = 0
    is_away: bool = False

    @property
    def is_done(self) -> bool:
        """Whether it has done what it was asked."""
        return self.exit_code in (0, DIFFERENT)

    @property
    def reason(self) -> str:
        """What it says besides its result, in one line."""
        said = " ".join(self.err.removeprefix("feed-assets: ").split())
        return f"away: {said}" if self.is_away else said

    @property
    def document(self) -> Mapping[str, str]:
        """How it ended, in JSON."""
        message = self.out.strip() if self.is_done else self.reason
        if self.is_done and message.startswith("{"):
            found = json.loads(message)
            done = (f"{each['outcome']} ({each['kind']}) {each['name']}" for each in found.get("outcomes", ()))
            message = found.get("message") or found.get("state") or "; ".join(done) or self.reason
        return {"colo": self.colo, "status": "SUCCEEDED" if self.is_done else "FAILED", "message": message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The server of a colo."""

    colo: str
    url: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, colo: str, settings: SiteSettings) -> "Site":
        """Return the server that the settings name. Its token is a secret from now on."""
        remember_unnamed(settings.token)
        return cls(colo=colo, url=settings.url, token=settings.token)

    def ask(self, calls: Iterable[Call], user: str | None, *, dry_run: bool = False) -> Told:
        """Ask it for one call after the other until one fails, on behalf of a user or for the front itself."""
        told, headers = Told(colo=self.colo), {"Accept": CONSOLE, "Authorization": f"Bearer {self.token}"}
        for each in calls:
            values = {**each.values, **({"dry_run": "true"} if dry_run else {})}
            question = ask_for(each.operation, values, None if each.files is None else ("", pack_files(each.files)))
            question = question._replace(if_unknown=f"Its token in the setting colos.{self.colo} does not hold.")
            awake = ask_for(find_operation("settings"), {})._replace(if_unknown=question.if_unknown)
            question = question if user is None else on_behalf_of(user, question)
            try:
                send(self.url, awake, headers, seconds=_AWAKE)  # one that hangs does not keep the others waiting
                answer = send(self.url, question, headers)
            except ServiceError as exc:
                is_away = isinstance(exc, ServiceAwayError)
                reason = f"{exc.reason.removeprefix('it ')}. {_AGAIN if is_away else exc.next_step}"
                return Told(colo=self.colo, out=told.out, err=reason, exit_code=AWAY, is_away=is_away)
            told = Told(colo=self.colo, **{**answer, "out": told.out + answer["out"]})
            if not told.is_done:
                break
        return told


def ask_all(
    sites: Mapping[str, Site], calls: Mapping[str, Iterable[Call]], user: str | None, *, dry_run: bool = False
) -> dict[str, Told]:
    """Ask the servers of several colos at the same time; see `Site.ask`."""
    with ThreadPoolExecutor(max(len(calls), 1)) as pool:
        asked = {colo: pool.submit(sites[colo].ask, each, user, dry_run=dry_run) for colo, each in calls.items()}
        return {colo: each.result() for colo, each in asked.items()}


def merge(found: Mapping[str, Any]) -> Any:
    """Return one JSON value of those of several colos: rows with their colo, counts added, other texts as `east/text`.

    >>> merge({"east": {"total": 1, "rows": [{"a": 1}]}, "west": {"total": 2, "rows": []}})
    {'total': 3, 'rows': [{'a': 1, 'colo': 'east'}]}
    """
    values = list(found.values())
    if all(isinstance(each, dict) for each in values):
        names = dict.fromkeys(name for each in values for name in each)
        of = {name: {colo: each[name] for colo, each in found.items() if name in each} for name in names}
        return {name: sum(each.values()) if name == "total" else merge(each) for name, each in of.items()}
    if all(isinstance(each, list) for each in values):
        rows = ((colo, row) for colo, each in found.items() for row in each)
        return [{**row, "colo": colo} if isinstance(row, dict) else row for colo, row in rows]
    if all(each == values[0] for each in values):
        return values[0]
    if all(isinstance(each, bool) for each in values):
        return any(values)
    if all(isinstance(each, int | float) for each in values):
        return sum(values)
    return ", ".join(f"{colo}/{each}" for colo, each in found.items() if each is not None)


def read_tables(told: Iterable[Told]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of tables in CSV, each row with its colo."""
    tables = [(each.colo, list(csv.reader(io.StringIO(each.out)))) for each in told]
    header = next((rows[0] for _, rows in tables if rows), [])
    return ["colo", *header], [[colo, *row] for colo, rows in tables for row in rows[1:]]


def iter_lines(told: Told, text: str) -> Iterator[str]:
    """Yield the lines of a text of a colo, as `east/text`."""
    return (f"{told.colo}/{line}" for line in text.removeprefix("feed-assets: ").splitlines() if line.strip())
