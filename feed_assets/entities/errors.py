"""Errors about definitions that are missing or cannot be used."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from feed_assets.errors import Fault, FeedAssetsError, WrongUsageError

if TYPE_CHECKING:
    from feed_assets.issues import Issue


class DefinitionsError(FeedAssetsError):
    """Entity files cannot be used; `issues` are the issues found in them, if any."""

    fault = Fault.CONTENT

    def __init__(
        self,
        *,
        location: str,
        issues: "Sequence[Issue]" = (),
        reason: str | None = None,
        next_step: str = "Correct the values below.",
    ) -> None:
        self.location = location
        self.next_step = next_step
        self.issues = tuple(issues)
        self.reason = reason or f"{len(self.issues)} {'issue was' if len(self.issues) == 1 else 'issues were'} found"
        details = "".join(f"\n  {issue.render()}" for issue in self.issues)
        super().__init__(f"{location}: {self.reason}. {next_step}{details}")


class EntityNotFoundError(DefinitionsError):
    """No entity of this kind and name is declared. It may have had the name, and have another one `now`."""

    fault = Fault.MISSING

    def __init__(self, *, kind: str, name: str, suggestions: tuple[str, ...] = (), now: tuple[str, ...] = ()) -> None:
        article = "an" if kind == "entity" else "a"
        names = " or ".join(map(repr, suggestions))
        is_word = kind in ("tag", "owner", "colo", "group", "pipeline")
        declare = f"No entity has a {kind}." if is_word else f"Declare {article} {kind} {name!r}."
        hint = f"Did you mean {names}?" if suggestions else declare
        hint = f"It is called {' or '.join(map(repr, now))} now." if now else hint
        super().__init__(location="the definitions", reason=f"there is no {kind} {name!r}", next_step=hint)


class DuplicateEntityError(DefinitionsError):
    """Two entities of one kind have the same name."""

    def __init__(self, *, kind: str, name: str) -> None:
        super().__init__(
            location="the definitions",
            reason=f"there are two entities of kind {kind!r} with the name {name!r}",
            next_step="Rename one of them.",
        )


class AmbiguousNameError(WrongUsageError):
    """Entities of several kinds have the name that was given without a kind."""

    def __init__(self, *, name: str, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        super().__init__(f"{' and '.join(f'a {kind}' for kind in kinds)} have the name {name!r}: give its kind, too.")


class ColumnsError(DefinitionsError):
    """A feed's schema cannot be parsed."""

    def __init__(self, *, text: str, reason: str) -> None:
        super().__init__(
            location=f"schema {text!r}",
            reason=reason,
            next_step="Write columns as Spark does: `name type, name type`.",
        )


class MetadataRefusedError(FeedAssetsError):
    """Metadata of an entity cannot be written or asked for. Nothing was changed."""

    fault = Fault.ASKED

    def __init__(self, *, entity: str, reason: str, next_step: str, fault: Fault = Fault.ASKED) -> None:  # noqa: ARG002 - a fact
        super().__init__(f"{entity}: {reason}. {next_step}")


class PatternError(DefinitionsError):
    """A pattern of made-up texts has a part that is not supported."""

    def __init__(self, *, text: str, position: int, reason: str, next_step: str) -> None:
        where = f", character {position}" if position else ""
        super().__init__(location=f"regex {text!r}{where}", reason=reason, next_step=next_step)
