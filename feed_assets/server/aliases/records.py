"""Paths that others know, as rows: which operation a request of another system calls, with what, and how its answer
looks there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from feed_assets.errors import WrongUsageError
from feed_assets.json_form import parse_json
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import find_operation
from feed_assets.server import records


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
    names: Mapping[str, str] = field(default_factory=dict)
    """Their names of parameters in path and query, with those of the operation; "" for what only `given` or `form`
    reads, or nobody. Another parameter of the query is refused."""
    given: Callable[[Asked], Mapping[str, Any] | list[Mapping[str, Any]]] = lambda _: {}
    """Parameters of the operation that are not there under another name, by ours; of several calls a list, for `form` a
    list of documents. The file of one that takes a file is the body, unless it is named here."""
    form: Callable[[Any, Asked], Any] = lambda document, _: document
    """The answer: from the document of the operation, or from its text if it has none. A text is sent as it is, None is
    an answer without content."""
    absent: Any = None
    """The document in the place of that of what is not there; None if the answer is 404."""
    statuses: Mapping[int, int] = field(default_factory=dict)
    """Of refusals: the status there for that of ours."""
    refusal: Callable[[str, int], Any] | None = None
    """The form of a refusal, from its sentence and status; a problem document without one."""
    media_type: str = "text/plain; charset=utf-8"
    """That of an answer that is a text."""

    @cached_property
    def called(self) -> Operation:
        """The operation."""
        return find_operation(self.operation)

    @property
    def right(self) -> Does:
        """The right that it needs."""
        return self.called.right
