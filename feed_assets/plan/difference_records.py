"""What a difference between two sets of definitions consists of, as records with a JSON form."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.differences import FieldChange
from feed_assets.issues import EntityKey, Source
from feed_assets.plan.records import Key
from feed_assets.plan.signs import Step, Weight
from feed_assets.plan.spans import Run
from feed_assets.timing.dates import render_datetime

VERSION = 1
"""Version of the JSON form."""


class Turn(StrEnum):
    """What becomes of an entity."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class Effect(StrEnum):
    """What becomes of instances: they come into being, and some of them are left out at once; they are given up, become
    older than their limit, or are copied.
    """

    DUE = "due"
    SKIPPED = "skipped"
    DROPPED = "dropped"
    EXPIRED = "expired"
    COPIED = "copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A field that differs, and what that means for the processes that see it."""

    change: FieldChange
    weight: Weight

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {**self.change.to_json(), "weight": self.weight.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDifference:
    """An entity that is added, changed or removed; `joined` and `left` are the clusters that it enters and leaves."""

    key: EntityKey
    turn: Turn
    fields: tuple[FieldDifference, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    source: Source | None

    @property
    def label(self) -> str:
        """How messages call the entity."""
        return label_of(self.key)

    @property
    def is_versioned(self) -> bool:
        """Whether it is a cluster with another version: processes see the change when that is brought to them."""
        is_cluster = self.key[0] == Kind.CLUSTER
        return is_cluster and any(field.change.path == ("version",) for field in self.fields)

    def hard_fields(self, cluster: str) -> tuple[str, ...]:
        """The fields that make a new release of what sees the entity on a cluster."""
        elsewhere = {"clusters"} if self.key[0] in (Kind.FEED, Kind.PROCESS) else frozenset()
        return tuple(
            field.change.field
            for field in self.fields
            if field.weight is Weight.RELEASE
            and not (field.change.path[0] in elsewhere and field.change.path[1] != cluster)
        )

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "kind": self.key[0],
            "name": self.key[1],
            "turn": self.turn.value,
            "fields": [field.to_json() for field in self.fields],
            "clusters_joined": list(self.joined),
            "clusters_left": list(self.left),
            "file": self.source.file if self.source else None,
            "line": self.source.line if self.source else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """An entity whose change reaches a process, and the fields that do it; no fields where it came or went."""

    key: EntityKey
    fields: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {"kind": self.key[0], "name": self.key[1], "fields": list(self.fields)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a process stands on a cluster, as the state has it.

    `is_active` is False for one that nothing has scheduled: changes are only stored. `stood_from` is from when any
    release governs, `newest_from` from when the newest does; `unended` counts the instances that exist and have not
    ended. With `governs_all` a change holds for all that was not begun; `first_unbegun` is the first of these.
    """

    is_active: bool = True
    is_suspended: bool = False
    release: int = 0
    stood_from: datetime | None = None
    newest_from: datetime | None = None
    has_begun: bool = False
    governs_all: bool = False
    first_unbegun: datetime | None = None
    unended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDifference:
    """How the releases of a process on a cluster go on: from `effective_from` its new definition governs.

    `release` is the number of the release that governs then. Instances that have ended stay as they are, whatever the
    step. A change of a process whose new end is past is refused.
    """

    process: str
    cluster: str
    step: Step
    effective_from: datetime | None
    ends_at: datetime | None
    release: int
    standing: Standing
    causes: tuple[Cause, ...]
    is_refused: bool = False

    @property
    def key(self) -> Key:
        return (self.process, self.cluster)

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "process": self.process,
            "cluster": self.cluster,
            "step": self.step.value,
            "effective_from": render_datetime(self.effective_from) if self.effective_from else None,
            "ends_at": render_datetime(self.ends_at) if self.ends_at else None,
            "release": self.release,
            "scheduled": self.standing.is_active,
            "suspended": self.standing.is_suspended,
            "unended": self.standing.unended,
            "refused": self.is_refused,
            "causes": [cause.to_json() for cause in self.causes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesDifference:
    """What becomes of some instances of a feed or process on a cluster at once; `of` is the source that is copied."""

    effect: Effect
    kind: Kind
    name: str
    cluster: str
    runs: tuple[Run, ...]
    of: str | None = None

    @property
    def count(self) -> int:
        """How many instances."""
        return sum(run.count for run in self.runs)

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "effect": self.effect.value,
            "kind": self.kind.value,
            "name": self.name,
            "cluster": self.cluster,
            "from_cluster": self.of,
            "count": self.count,
            "ranges": [
                {"first": render_datetime(run.first), "last": render_datetime(run.last), "count": run.count}
                for run in self.runs
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """All that would be otherwise. Instances that have ended are not run again by any change of a definition."""

    as_of: datetime
    entities: tuple[EntityDifference, ...]
    processes: tuple[ProcessDifference, ...]
    instances: tuple[InstancesDifference, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be otherwise."""
        return not self.entities

    def count(self, effect: Effect, kind: Kind | None = None) -> int:
        """How many instances are affected in one way."""
        return sum(
            each.count for each in self.instances if each.effect is effect and (kind is None or each.kind is kind)
        )

    def of_turn(self, turn: Turn) -> tuple[EntityDifference, ...]:
        """The entities of one turn."""
        return tuple(entity for entity in self.entities if entity.turn is turn)

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "as_of": render_datetime(self.as_of),
            "is_empty": self.is_empty,
            "entities": [entity.to_json() for entity in self.entities],
            "processes": [process.to_json() for process in self.processes],
            "instances": [each.to_json() for each in self.instances],
            "counts": {
                **{turn.value: len(self.of_turn(turn)) for turn in Turn},
                **{f"instances_{effect.value}": self.count(effect) for effect in Effect},
                "instances_run_again": 0,
            },
        }
