"""The servers of the colos, as a front asks them: by the operations that commands ask for with `--server`."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from feed_assets.cli.door import CONSOLE
from feed_assets.cli.exit_codes import AWAY, DIFFERENT
from feed_assets.cli.remote import ask_for, on_behalf_of, pack_files, send
from feed_assets.cli.render import Output, say
from feed_assets.engines.errors import ServiceAwayError, ServiceError
from feed_assets.entities.maps import EMPTY
from feed_assets.loading.entity_files import EntityFile
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
        return {"status": "SUCCEEDED" if self.is_done else "FAILED", "message": message}


def ask_site(colo: str, site: SiteSettings, calls: Iterable[Call], user: str | None, *, dry_run: bool = False) -> Told:
    """Ask the server of a colo for one call after the other until one fails, on behalf of a user or for the front."""
    told, headers = Told(), {"Accept": CONSOLE, "Authorization": f"Bearer {site.token}"}
    for each in calls:
        values = {**each.values, **({"dry_run": "true"} if dry_run else {})}
        question = ask_for(each.operation, values, None if each.files is None else ("", pack_files(each.files)))
        question = question._replace(if_unknown=f"Its token in the setting colos.{colo} does not hold.")
        awake = ask_for(find_operation("settings"), {})._replace(if_unknown=question.if_unknown)
        question = question if user is None else on_behalf_of(user, question)
        try:
            send(site.url, awake, headers, seconds=_AWAKE)  # one that hangs does not keep the others waiting
            answer = send(site.url, question, headers)
        except ServiceError as exc:
            is_away = isinstance(exc, ServiceAwayError)
            reason = f"{exc.reason.removeprefix('it ')}. {_AGAIN if is_away else exc.next_step}"
            return Told(out=told.out, err=reason, exit_code=AWAY, is_away=is_away)
        told = Told(**{**answer, "out": told.out + answer["out"]})
        if not told.is_done:
            break
        if values.get("output") == Output.JSON and not _is_json(told.out):
            return Told(err="answers something that is no JSON of feed-assets. Check its address.", exit_code=AWAY)
    return told


def _is_json(text: str) -> bool:
    with suppress(ValueError):
        return isinstance(json.loads(text), dict)
    return False


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


def read_tables(told: Mapping[str, Told]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of tables in CSV, each row with its colo."""
    tables = {colo: list(csv.reader(io.StringIO(each.out))) for colo, each in told.items()}
    header = next((rows[0] for rows in tables.values() if rows), [])
    return ["colo", *header], [[colo, *row] for colo, rows in tables.items() for row in rows[1:]]


def say_of(colo: str, text: str, *, err: bool = False) -> None:
    """Print the lines of a text of a colo, as `east/text`."""
    for line in filter(str.strip, text.removeprefix("feed-assets: ").splitlines()):
        say(f"{colo}/{line}", err=err)
