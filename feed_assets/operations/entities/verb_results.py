"""What entity verbs answer: what became of each entity, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from feed_assets.entities.common import label_of
from feed_assets.entities.differences import FieldChange
from feed_assets.issues import Issue
from feed_assets.state.records import ProcessInstance

VERSION = 1


class Outcome(StrEnum):
    """What became of an entity."""

    VALID = "valid"
    SUBMITTED = "submitted"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SCHEDULED = "scheduled"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    TOUCHED = "touched"
    DELETED = "deleted"
    MISSING = "missing"


_NOTHING_DONE = frozenset({Outcome.VALID, Outcome.UNCHANGED, Outcome.MISSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOutcome:
    """What became of one entity. `clusters` has the schedule state on each cluster that is concerned, `changes` the
    fields that differ, `notes` are sentences.
    """

    kind: str
    name: str
    outcome: Outcome
    version: int | None = None
    clusters: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How messages call the entity."""
        return label_of((self.kind, self.name))

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "kind": self.kind,
            "name": self.name,
            "outcome": self.outcome.value,
            "version": self.version,
            "clusters": dict(self.clusters),
            "changes": [change.to_json() for change in self.changes],
            "notes": list(self.notes),
        }


class EffectiveTime(Protocol):
    """When another definition begins to govern a process."""

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        ...

    def render(self) -> str:
        """One sentence."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbResult:
    """What a verb did, or with `dry_run` would do.

    `releases` say when which definition begins to govern the processes concerned. `stopped` are instances that were
    killed, as they were: the caller ends their runs. `reload_needed` says whether a running Dagster has to load anew to
    show what was changed; its ticks follow in any case.
    """

    verb: str
    outcomes: tuple[EntityOutcome, ...]
    warnings: tuple[Issue, ...] = ()
    releases: tuple[EffectiveTime, ...] = ()
    stopped: tuple[ProcessInstance, ...] = ()
    reload_needed: bool = False
    dry_run: bool = False

    @property
    def is_change(self) -> bool:
        """Whether anything was done, or would be."""
        return any(each.outcome not in _NOTHING_DONE for each in self.outcomes)

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "verb": self.verb,
            "dry_run": self.dry_run,
            "changed": self.is_change,
            "entities": [each.to_json() for each in self.outcomes],
            "releases": [each.to_json() for each in self.releases],
            "warnings": [issue.to_json() for issue in self.warnings],
            "stopped_instances": len(self.stopped),
            "reload_needed": self.reload_needed,
        }
