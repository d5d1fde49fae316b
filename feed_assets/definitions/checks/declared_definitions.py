"""Checks of definitions that run nothing, and the JSON Schema of entity files."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaWarningKind, models_json_schema

from feed_assets.definitions.checks.code_checks import check_code
from feed_assets.entities.bundle import ENTITY_TYPES, Bundle
from feed_assets.entities.common import Kind
from feed_assets.issues import Issue, Severity, Source, fold_followers, order_of
from feed_assets.json_form import Hidden, shown
from feed_assets.loading.bundles import load_files, usable_bundle
from feed_assets.loading.entity_files import read_declared_files, read_entity_files, values_of
from feed_assets.settings import Settings
from feed_assets.validation.rules import validate_bundle

_MODE: JsonSchemaMode = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """The issues of a validation. `usable` has the entities that no issue excludes."""

    location: str
    issues: tuple[Issue, ...]
    usable: Hidden[Bundle]
    digest: str
    strict: Hidden[bool] = False

    @shown
    def errors(self) -> int:
        """The number of issues that exclude entities."""
        return sum(issue.severity is Severity.ERROR for issue in self.issues)

    @shown
    def warnings(self) -> int:
        """The number of issues that exclude nothing."""
        return len(self.issues) - self.errors

    @shown
    def usable_names(self) -> dict[Kind, tuple[str, ...]]:
        """The names of the usable entities, by kind."""
        return {kind: self.usable.names(kind) for kind in Kind}

    @property
    def has_failed(self) -> bool:
        """Whether there is an error or, if it is `strict`, a warning."""
        return bool(self.issues if self.strict else self.errors)

    @property
    def summary(self) -> str:
        """One line: the usable entities and the number of issues."""
        counts = [(len(self.usable.names(kind)), kind.value) for kind in Kind]
        usable = ", ".join(_counted(count, noun) for count, noun in counts if count) or "nothing"
        wrong = f"{_counted(self.errors, 'error')}, {_counted(self.warnings, 'warning')}"
        return f"{self.location}: {wrong}; usable: {usable}"


def load_declared(settings: Settings) -> Bundle:
    """Load all readable entities from the location that the settings name.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    return load_files(read_declared_files(settings), values_of(settings)).bundle


def validate_location(
    settings: Settings,
    location: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    live: bool = False,
    strict: bool = False,
) -> ValidationReport:
    """Read the entities of a location and the code that they name, and apply every rule. No user code is imported,
    except with `live`.

    Args:
        settings: name the location, the variables and the folder of files.
        location: a folder, file or URL that replaces that of the settings.
        environ: the environment for `${env:NAME}`; the process's own if None.
        live: also check that storages, Spark, catalogs, databases and the state can be reached. Entities that fail stay
            usable.
        strict: a warning is a failure; so it is if the settings say so.

    Raises:
        LocationUnreadableError: the location does not exist or cannot be read.
    """
    files = read_declared_files(settings) if location is None else read_entity_files(location)
    location = location or settings.entities_location
    loaded = load_files(files, values_of(settings, environ))
    found = validate_bundle(
        loaded.bundle, loaded.sources, settings.code_root, left_out=loaded.salvaged, listeners=settings.notify
    )
    issues = [*loaded.issues, *found]
    if not loaded.sources and not issues:
        issues.append(_nothing_issue(location))
    usable, blocked = usable_bundle(loaded, issues)
    here = usable.seen_from(settings.works_in)
    reached = check_code(here, sources=loaded.sources, root=settings.root)
    if live:
        # These import engines and adapters, which nothing else needs.
        from feed_assets.definitions.checks.code_trials import try_code
        from feed_assets.definitions.checks.live_checks import check_reachability, check_state

        unread = [issue for issue in reached if issue.severity is Severity.ERROR]
        labels = {issue.entity for issue in unread}
        readable = [each.key for each in (*here.feeds, *here.processes) if each.label not in labels]
        reached = [
            *unread,
            *try_code(here, readable, sources=loaded.sources, root=settings.root),
            *check_reachability(here, sources=loaded.sources, root=settings.root, environ=environ),
            *check_state(settings, os.environ if environ is None else environ),
        ]
    ordered = sorted(fold_followers([*issues, *blocked, *reached]), key=order_of)
    return ValidationReport(
        location=location,
        issues=tuple(ordered),
        usable=usable,
        digest=loaded.digest,
        strict=strict or settings.strict,
    )


def _nothing_issue(location: str) -> Issue:
    return Issue(
        severity=Severity.WARNING,
        code="no-entities",
        entity=None,
        message="no entity is declared here",
        remedy="Write files that end with .yaml, each document with kind: cluster, feed or process.",
        source=Source(file=location),
    )


class _Schema(GenerateJsonSchema):
    """JSON Schema without the defaults that have no JSON form: empty maps."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


def entity_schema(kind: Kind | None = None) -> dict[str, Any]:
    """Return the JSON Schema of one document, for editors: of one kind, or of all kinds, chosen by `kind:`."""
    kinds = [kind] if kind else list(Kind)
    models = [(ENTITY_TYPES[each], _MODE) for each in kinds]
    references, document = models_json_schema(models, by_alias=True, schema_generator=_Schema)
    definitions = document["$defs"]
    for each in kinds:
        name = ENTITY_TYPES[each].__name__
        entity = definitions[name]
        entity["properties"] = {"kind": {"const": each.value}, **entity["properties"]}
        entity["required"] = ["kind", *entity.get("required", [])]
    choices = [
        {
            "if": {"properties": {"kind": {"const": each.value}}, "required": ["kind"]},
            "then": references[ENTITY_TYPES[each], _MODE],
        }
        for each in kinds
    ]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "feed-assets entity",
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": [each.value for each in kinds]}},
        "allOf": choices,
        "$defs": definitions,
    }


def _counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _counted(1, "process"), _counted(2, "process"), _counted(0, "feed")
    ('1 process', '2 processes', '0 feeds')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"
