"""Results of entity verbs: the outcome for each entity, and the consequences."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from feed_assets.entities.common import label_of
from feed_assets.entities.differences import FieldChange
from feed_assets.issues import Issue
from feed_assets.json_form import Hidden, shown
from feed_assets.log.records import ProcessInstance
from feed_assets.releases.decide_releases import ReleaseDecision


class EntityVerb(StrEnum):
    """The verbs on entities, as results, history and audit name them."""

    SUBMIT = "submit"
    SCHEDULE = "schedule"
    SUBMIT_AND_SCHEDULE = "submit-and-schedule"
    VALIDATE = "validate"
    UPDATE = "update"
    UPDATE_CLUSTER_DEPENDENTS = "update-cluster-dependents"
    TOUCH = "touch"
    DELETE = "delete"
    RENAME = "rename"
    SUSPEND = "suspend"
    RESUME = "resume"
    APPLY = "apply"


class VerbOutcome(StrEnum):
    """The outcome of a verb for an entity."""

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
    REGISTERED = "registered"
    UNREGISTERED = "unregistered"
    ENABLED = "enabled"
    DISABLED = "disabled"


_NOTHING_DONE = frozenset({VerbOutcome.VALID, VerbOutcome.UNCHANGED, VerbOutcome.MISSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityOutcome:
    """The outcome for one entity. `clusters` has the schedule state on each affected cluster, `changes` the differing
    fields; `notes` are sentences.
    """

    kind: str
    name: str
    outcome: VerbOutcome
    version: int | None = None
    clusters: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of the entity in messages."""
        return label_of((self.kind, self.name))

    @property
    def changed(self) -> tuple[str, ...]:
        """The differing fields, each with its values before and after."""
        values = ((each.field, *map(_render_value, (each.before, each.after))) for each in self.changes)
        return tuple(f"{name}: {before} -> {after}" for name, before, after in values)

    @property
    def audited(self) -> Mapping[str, object]:
        """What the audit says of the change: the version and the differing fields."""
        return {"version": self.version, **({"changed": self.changed} if self.changes else {})}

    def iter_lines(self, would: str) -> Iterator[str]:
        """Yield what became of the entity, or `would` become of it, and why."""
        version = f", version {self.version}" if self.version is not None else ""
        states = ", ".join(f"{cluster} {state}" for cluster, state in self.clusters.items())
        yield f"{self.label}: {would}{self.outcome.value}{version}" + (f" ({states})" if states else "")
        yield from (f"  {text}" for text in (*self.changed, *self.notes))


def _render_value(value: object) -> str:
    return "(nothing)" if value is None else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbResult:
    """The effects of a verb, or with `dry_run` its planned effects.

    `releases` give the times from which definitions govern the affected processes. `stopped` are the killed instances,
    as they were before: the caller ends their runs. `reload_needed` means that a running Dagster must reload to show
    the change; its ticks follow the change in any case.
    """

    verb: str
    outcomes: tuple[EntityOutcome, ...]
    warnings: tuple[Issue, ...] = ()
    releases: tuple[ReleaseDecision, ...] = ()
    stopped: Hidden[tuple[ProcessInstance, ...]] = ()
    reload_needed: bool = False
    dry_run: bool = False

    @shown
    def is_change(self) -> bool:
        """Whether anything was changed, or would be."""
        return any(each.outcome not in _NOTHING_DONE for each in self.outcomes)

    @shown
    def stopped_instances(self) -> int:
        """The number of killed instances."""
        return len(self.stopped)

    @property
    def lines(self) -> tuple[str, ...]:
        """The outcomes and the releases, for people."""
        would = "would be " if self.dry_run and self.verb != "validate" else ""
        outcomes = (line for each in self.outcomes for line in each.iter_lines(would))
        return (*outcomes, *(each.render() for each in self.releases))

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings, and whether there was nothing to apply."""
        nothing = ("Nothing would change.",) if self.verb == EntityVerb.APPLY and not self.outcomes else ()
        return (*nothing, *(each.line for each in self.warnings))
