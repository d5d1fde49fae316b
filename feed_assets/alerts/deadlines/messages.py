"""The messages about missed deadlines: one for all instances of an entity that a tick finds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TypeAlias

from feed_assets.alerts.deadlines.records import LateInstance, Recovered, Recovery, SlaMiss
from feed_assets.entities.common import Kind
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.payloads import SlaEvent, SlaPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.timing.dates import render_datetime

FindCauses: TypeAlias = Callable[[Sequence[LateInstance]], Mapping[LateInstance, str]]
"""Finds the root cause of each of some late instances; those that it cannot explain are left out."""

CAUSES_A_TICK = 20
"""Root causes are found for the oldest instance of so many messages; the others are told without one."""

SENTENCES: Mapping[Recovery, str] = {
    Recovery.ARRIVED: "it has arrived",
    Recovery.STARTED: "it has started",
    Recovery.SUCCEEDED: "it has succeeded",
    Recovery.SKIPPED: "it was skipped",
    Recovery.EVICTED: "retention has removed it",
    Recovery.DELETED: "its feed or process was deleted",
    Recovery.UNDECLARED: "it has no such deadline any more",
    Recovery.MOVED: "its deadline was moved",
}


def first_of_each(misses: Iterable[SlaMiss]) -> list[LateInstance]:
    """Return the oldest instance of each message about missed deadlines; at most `CAUSES_A_TICK`."""
    return list(dict.fromkeys(map(_oldest, _by_message(misses).values())))[:CAUSES_A_TICK]


def build_missed(misses: Iterable[SlaMiss], causes: Mapping[LateInstance, str], as_of: datetime) -> list[OutboxMessage]:
    """Return a message for each entity and level with misses that are told; `causes` are those of `first_of_each`."""
    return [
        _message(SlaEvent.MISSED, level, found, causes.get(_oldest(found)), as_of)
        for (*_, level), found in _by_message(misses).items()
    ]


def _oldest(misses: Sequence[SlaMiss]) -> LateInstance:
    return min(misses, key=lambda miss: miss.nominal_time).instance


def _by_message(misses: Iterable[SlaMiss]) -> dict[tuple[str, str, str, SlaLevel], list[SlaMiss]]:
    groups: dict[tuple[str, str, str, SlaLevel], list[SlaMiss]] = {}
    for miss in misses:
        if miss.told_at is not None:
            groups.setdefault((miss.kind, miss.name, miss.cluster, miss.level), []).append(miss)
    return groups


def build_recovered(
    recovered: Iterable[Recovered], still_late: frozenset[LateInstance], as_of: datetime
) -> list[OutboxMessage]:
    """Return a message for each entity with instances that are not late any more, and for each way in which that came.

    An instance is named once, with the highest deadline that it had missed, if that was told. One that is `still_late`
    by another deadline is not named.
    """
    worst: dict[LateInstance, Recovered] = {}
    for each in recovered:
        known = worst.get(each.miss.instance)
        if each.miss.told_at is None or each.miss.instance in still_late:
            continue
        if known is None or known.miss.level is SlaLevel.LOW:
            worst[each.miss.instance] = each
    groups: dict[tuple[str, str, str, bool, Recovery], list[SlaMiss]] = {}
    for each in worst.values():
        miss = each.miss
        is_high = miss.level is SlaLevel.HIGH
        groups.setdefault((miss.kind, miss.name, miss.cluster, is_high, each.by), []).append(miss)
    return [
        _message(SlaEvent.RECOVERED, found[0].level, found, SENTENCES[by], as_of)
        for (*_, by), found in sorted(groups.items(), key=itemgetter(0))
    ]


def _message(
    event: SlaEvent, level: SlaLevel, misses: Sequence[SlaMiss], reason: str | None, as_of: datetime
) -> OutboxMessage:
    listed = sorted(misses, key=lambda miss: miss.nominal_time)
    return build_message(event, level, [miss.instance for miss in listed], reason, as_of, str(listed[0].episode))


def build_message(
    event: SlaEvent, level: SlaLevel, instances: Sequence[LateInstance], reason: str | None, as_of: datetime, *more: str
) -> OutboxMessage:
    """Return a message about instances of an entity, oldest first, with `more` in its key."""
    first, times = instances[0], [each.nominal_time for each in instances]
    return OutboxMessage(
        recorded_at=as_of,
        payload=SlaPayload(
            event=event,
            sla=level,
            kind=Kind(first.kind),
            entity=first.name,
            cluster=first.cluster,
            count=len(times),
            oldest=times[0],
            newest=times[-1],
            instances=tuple(map(render_datetime, times)),
            reason=reason,
        ),
        idempotency_key=key_of_message(event, level, first, *more),
    )


def key_of_message(event: SlaEvent, level: SlaLevel, first: LateInstance, *more: str) -> str:
    """Return the idempotency key of a message; `first` is the oldest instance that it tells of."""
    return "/".join(("sla", event.value, *first[:3], level.value, render_datetime(first.nominal_time), *more))
