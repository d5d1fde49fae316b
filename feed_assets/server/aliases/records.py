"""Paths that others know, as rows: which operation a request of another system calls, with what, and how its answer
looks there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from feed_assets.entities.maps import EMPTY
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import parse_json
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import find_operation
from feed_assets.server import records

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(records.Asked):
    """A request by a path that others know."""

    content: bytes = b""
    """Its body."""
    namespace: str = "default"
    """The namespace of the project."""
    author: str = ""
    """Who asks."""
    now: datetime
    ask: Callable[..., Any] = lambda _, **__: None
    """Asks another operation that only reads for its document: `ask("entity dependency", name="clicks")`."""

    def many(self, name: str) -> list[str]:
        """Return the values of a part that may be repeated."""
        value = self.values.get(name, [])
        return [value] if isinstance(value, str) else value

    @property
    def body(self) -> Any:
        """The body, from JSON; None without one.

        Raises:
            WrongUsageError: it is no JSON.
        """
        try:
            return parse_json(self.content or b"null")
        except ValueError as exc:
            raise WrongUsageError(f"The body is no JSON: {exc}.") from exc


def parse_names(text: str) -> dict[str, str]:
    """Return names there, each with ours.

    >>> parse_names("start, filterBy=filter_by, skipDryRun=")
    {'start': 'start', 'filterBy': 'filter_by', 'skipDryRun': ''}
    """
    pairs = (each.partition("=") for each in text.split(", ") if each)
    return {name: ours if is_other else name for name, is_other, ours in pairs}


def reshape(names: str, made: Mapping[str, Callable[[Any], Any]] = EMPTY) -> Callable[[Json], dict[str, Any]]:
    """Return what gives members of ours their names there: `same`, `theirs=ours`, or `theirs=ours:made` for what is
    made of ours; of all of them without `ours`. What is None or an empty list is left out.

    >>> reshape("name, type=kind:upper, tag=tags", {"upper": str.upper})({"kind": "feed", "name": "a", "tags": []})
    {'name': 'a', 'type': 'FEED'}
    """
    members = [(theirs, *ours.partition(":")[::2]) for theirs, ours in parse_names(names).items()]

    def give(found: Json) -> dict[str, Any]:
        values = ((theirs, found.get(ours) if ours else found, made.get(how)) for theirs, ours, how in members)
        told = ((theirs, make(value) if make else value) for theirs, value, make in values)
        return {theirs: value for theirs, value in told if value not in (None, [])}

    return give


@dataclass(frozen=True)
class Alias:
    """A path that others know: the right that it needs is that of its operation.

    `given` and `form` raise FeedAssetsError for what the other system refuses.
    """

    method: str
    path: str
    """Such as `/v3/namespaces/{ns}/datasets/{name}/lineage`, in Starlette's form."""
    operation: str
    """The words of the command."""
    names: str = ""
    """Their names of parameters in path and query, with those of the operation, as `parse_names` reads them; nothing
    after = for what only `given` or `form` reads, or nobody. Another parameter of the query is refused."""
    given: Json | Callable[[Asked], Json | list[Json] | None] = EMPTY
    """Parameters of the operation that are not there under another name, by ours; of several calls a list, for `form` a
    list of documents. The file of one that takes a file is the body, unless it is named here."""
    form: Callable[[Any, Asked], Any] = lambda document, _: document
    """The answer: from the document of the operation, or from its text if it has none. A text is sent as it is, None is
    an answer without content."""
    absent: Any = None
    """The document in the place of that of what is not there; None if the answer is 404."""
    statuses: Mapping[int, int] = EMPTY
    """Of refusals: the status there for that of ours."""
    refusal: Callable[[str], Any] | None = None
    """The form of a refusal, from its sentence; a problem document without one."""
    media_type: str = "text/plain; charset=utf-8"
    """That of an answer that is a text."""

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """Their names of parameters, with ours."""
        return parse_names(self.names)

    @cached_property
    def called(self) -> Operation:
        """The operation."""
        return find_operation(self.operation)

    @property
    def right(self) -> Does:
        """The right that it needs."""
        return self.called.right
