"""The lengths of earlier waits, by group, and what they say of one that has not ended. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from feed_assets.alerts.forecasting.courses import Course
from feed_assets.alerts.forecasting.groups import Group, Groups
from feed_assets.alerts.forecasting.outlooks import ENDLESS, FEWEST, Outlook
from feed_assets.log.records import ProcessInstanceStatus

_IN_WORDS = {
    Group.HOUR: "at the same hour",
    Group.WEEKDAY: "on the same weekday at the same hour",
    Group.RECENT: "among the last few",
}
_READY = frozenset({ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED})
_NOT_READY = frozenset({ProcessInstanceStatus.WAITING, ProcessInstanceStatus.TIMEDOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The lengths of earlier waits in seconds, by group; `ENDLESS` those that have not ended."""

    by_group: Mapping[Group, Sequence[float]]

    @property
    def count(self) -> int:
        """How many earlier ones there are."""
        return len(self.by_group[Group.ALL])

    @property
    def is_enough(self) -> bool:
        """Whether there is enough history."""
        return self.count >= FEWEST

    def outlook(self, waited: timedelta | None) -> Outlook:
        """Return what is left of a wait; of one that has not begun, with None."""
        return Outlook.of_wait(self.by_group.values(), None if waited is None else waited.total_seconds())

    def stuck(self) -> Outlook:
        """Return the outlook of what does not go on by itself: as if none of the earlier ones had ended."""
        return Outlook.of_wait([[ENDLESS] * self.count], None)

    def compare(self, waited: timedelta, limit: timedelta) -> str:
        """Return how many waits were as long, and how many of them longer than a limit, in words."""
        late, most = waited.total_seconds(), limit.total_seconds()
        as_late = {group: [each for each in found if each > late] for group, found in self.by_group.items()}
        if not as_late[Group.ALL]:
            return f"none of the {self.count} earlier ones was as late as this one"
        missed = {group: sum(each > most for each in found) for group, found in as_late.items()}
        which = "that were as late as this one" if late > 0 else "earlier ones"
        parts = [
            f"{missed[group]} of {len(as_late[group])} {words}"
            for group, words in _IN_WORDS.items()
            if as_late.get(group)
        ]
        more = f", {', '.join(parts)}" if parts else ""
        return f"{missed[Group.ALL]} of the {len(as_late[Group.ALL])} {which} missed{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessWaits:
    """The waits of earlier instances of a process: for their inputs, in the queue, and for their work."""

    inputs: Waits
    queue: Waits
    work: Waits
    count: int

    @property
    def is_enough(self) -> bool:
        """Whether there is enough history."""
        return self.count >= FEWEST


def arrival_waits(groups: Groups, since: datetime, arrivals: Mapping[datetime, datetime]) -> Waits:
    """Return how late earlier instances of a feed came, from when they did; those before `since` tell nothing."""
    return Waits(
        by_group={
            group: [
                max(0.0, (arrivals[time] - time).total_seconds()) if time in arrivals else ENDLESS
                for time in times
                if time >= since
            ]
            for group, times in groups.items()
        }
    )


def process_waits(groups: Groups, limit: timedelta, courses: Mapping[datetime, Course]) -> ProcessWaits:
    """Return the waits of earlier instances of a process.

    Skipped instances tell nothing, nor do those that were created after their own deadline: they catch up.
    """
    counted = {
        time: course
        for time, course in courses.items()
        if course.status is not ProcessInstanceStatus.SKIPPED
        and course.created_at is not None
        and course.created_at <= time + limit
    }
    inputs: dict[Group, list[float]] = {}
    queue: dict[Group, list[float]] = {}
    work: dict[Group, list[float]] = {}
    for group, times in groups.items():
        found = [(time, counted[time]) for time in times if time in counted]
        inputs[group] = [each for time, course in found if (each := _for_inputs(time, course)) is not None]
        queue[group] = [each for _, course in found if (each := _in_queue(course)) is not None]
        work[group] = [each for _, course in found if (each := _at_work(course)) is not None]
    count = sum(time in counted for time in groups[Group.ALL])
    return ProcessWaits(
        inputs=Waits(by_group=inputs), queue=Waits(by_group=queue), work=Waits(by_group=work), count=count
    )


def _for_inputs(time: datetime, course: Course) -> float | None:
    if course.ready_at is not None:
        return max(0.0, (course.ready_at - time).total_seconds())
    return ENDLESS if course.started_at is None and course.status in _NOT_READY else None


def _in_queue(course: Course) -> float | None:
    if course.ready_at is None:
        return None
    if course.started_at is not None:
        return (course.started_at - course.ready_at).total_seconds()
    return ENDLESS if course.status in _READY else None


def _at_work(course: Course) -> float | None:
    if course.started_at is None:
        return None
    return ENDLESS if course.succeeded_at is None else (course.succeeded_at - course.started_at).total_seconds()
