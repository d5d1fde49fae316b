"""However definitions change: every instance of what governs comes into being, and no other.

`FEED_ASSETS_WALKS=200` for the long run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feed_assets.log.definitions.records import Release
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.releases.timeline import ActiveRelease, decide_spans, first_at_or_after
from feed_assets.timing.sequence import InstanceSequence, is_same_grid, parse_frequency
from tests.drills import sized
from tests.instances.harness import START, LifecycleHarness, at, process

EXAMPLES = sized(12, 300)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
LONG_AGO, FAR = at("2000-01-01"), at("2100-01-01")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is declared some time after the change before."""

    minutes: int
    frequency: str
    timezone: str
    start: datetime
    end: datetime | None
    timeout: str

    @property
    def sequence(self) -> InstanceSequence:
        return InstanceSequence(
            start=self.start, end=self.end, frequency=parse_frequency(self.frequency), timezone=ZoneInfo(self.timezone)
        )

    def declared(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "timezone": self.timezone, "timeout": self.timeout}


changes = st.builds(
    Change,
    minutes=st.integers(0, 3000),
    frequency=st.sampled_from(("minutes(45)", "hours(1)", "hours(5)", "days(1)", "days(2)")),
    timezone=st.sampled_from(("UTC", "America/New_York")),
    start=st.integers(-96, 96).map(lambda half_hours: START + timedelta(minutes=30 * half_hours)),
    end=st.none() | st.integers(3, 12).map(lambda days: START + days * DAY),
    timeout=st.sampled_from(("hours(8)", "hours(9)")),
)


class Model:
    """What ought to come into being, told naively: of what was ever declared, the last that holds from a time on."""

    def __init__(self) -> None:
        self.known: list[tuple[datetime, Change]] = []

    def change(self, declared: Change, now: datetime, *, has_begun: bool) -> None:
        sequence = declared.sequence
        if not has_begun:
            self.known = [(min([sequence.start, *(since for since, _ in self.known)]), declared)]
            return
        since, stood = self.known[-1]
        is_alike = is_same_grid(sequence, stood.sequence) and declared.timeout == stood.timeout
        if is_alike and declared.start == stood.start:
            self.known[-1] = (since, declared)
        elif is_alike and declared.start < stood.start and len(self.known) == 1:
            self.known = [(declared.start, declared)]
        elif is_alike and declared.start < stood.start:
            self.known = [(declared.start, declared), *self.known[:-1], (since, declared)]
        else:
            ahead = now + timedelta(minutes=3)
            begins = sequence.ceil(ahead if stood.end is None else min(ahead, stood.end)) or ahead
            self.known.append((begins, declared))

    def times(self, as_of: datetime) -> list[datetime]:
        end = self.known[-1][1].end or FAR
        moments = {time for _, each in self.known for time in each.sequence.between(LONG_AGO, min(as_of + SECOND, end))}
        found = []
        for moment in sorted(moments):
            governing = [each for since, each in self.known if since <= moment]
            if governing and governing[-1].sequence.contains(moment):
                found.append(moment)
        return found


@pytest.mark.sample
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=changes, more=st.lists(changes, min_size=1, max_size=5), last=st.integers(0, 6000))
def test_in_the_end_there_is_what_governs_without_hole_or_overlap(
    tmp_path_factory: pytest.TempPathFactory, first: Change, more: Sequence[Change], last: int
) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path_factory.mktemp("world"), process("ping", first.frequency, **first.declared())
    )
    model, now = Model(), START
    model.change(first, now, has_begun=False)
    for change in more:
        now += timedelta(minutes=change.minutes)
        lifecycle.tick(now)
        has_begun = bool(lifecycle.statuses("ping"))
        lifecycle.declare(process("ping", change.frequency, **change.declared()))
        model.change(change, now, has_begun=has_begun)
    now += timedelta(minutes=last)
    lifecycle.tick(now)

    expected = model.times(now)
    assert expected == sorted(set(expected))
    found = lifecycle.instances("ping")
    assert set(expected) <= set(found), "a hole"
    surplus = set(found) - set(expected)
    assert all(found[time].request_key is not None for time in surplus), "an overlap"
    assert all(row.status is ProcessInstanceStatus.READY for row in found.values())


@settings(max_examples=200, deadline=None)
@given(starts=st.lists(st.integers(0, 50), min_size=1, max_size=8), moment=st.integers(-5, 60))
def test_the_newest_release_that_has_begun_by_then_governs_a_time(starts: list[int], moment: int) -> None:
    releases = [
        Release(
            process="p",
            cluster="c",
            release=number,
            effective_from=START + timedelta(hours=hour),
            fingerprint="",
            members=(),
            recorded_at=START,
            reason="",
        )
        for number, hour in enumerate(starts, 1)
    ]
    time = START + timedelta(hours=moment)
    spans = decide_spans(releases)
    found = [release.release for release, start, stop in spans if start <= time < stop]
    governing = [release.release for release in releases if release.effective_from <= time]
    assert found == governing[-1:]
    assert [start for _, start, _ in spans] == sorted({start for _, start, _ in spans})


def test_the_first_instance_after_a_time_may_be_of_a_later_span(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", "days(1)"))
    daily = ActiveRelease.whole(lifecycle.plan, ("ping", "primary"))
    lifecycle.declare(process("ping", "hours(1)"))
    hourly = ActiveRelease.whole(lifecycle.plan, ("ping", "primary"))
    spans = [
        _cut(daily, at("01"), at("02T10:00")),
        _cut(hourly, at("02T10:00"), at("03")),
    ]
    assert first_at_or_after(spans, at("02T01:00")) == (spans[1], at("02T10:00"))
    assert first_at_or_after(spans, at("02T23:30")) is None


def _cut(active: ActiveRelease, start: datetime, stop: datetime) -> ActiveRelease:
    return replace(active, start=start, stop=stop)
