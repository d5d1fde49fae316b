"""Estimate how probable it is that an instance misses its deadline, by counting earlier ones. Pure.

What is left of a wait is an `Outlook`, made from how long the same wait took before. Of `r` earlier ones that took
longer than this one has taken by now, `m` took longer than it may: the probability of a miss is `(m + ½) / (r + 1)`.
For beside the earlier ones stands one more, of which half comes at once and half never. So a few never say 0 or 1, none
at all say ½, and the longer it takes the more probable a miss becomes. What has not come by now counts as never coming.

Earlier ones are counted in groups, each narrower than the one before: the last 60, those of the same hour, those of the
same weekday and hour, the last 6. What the groups before say counts as much as 8 of the next. So a pattern of the week
and a change of the last days show, and a few instances of a narrow group do not decide alone.

A process waits three times: for its inputs, in the queue, and for its work. Of several inputs the latest counts: those
that are late at once usually are late for one reason, so their probabilities are not multiplied. Waits that follow one
another are added in every combination. An input that a process makes has that process's outlook, three processes up.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Self

ENDLESS = math.inf
FEWEST = 20
"""With fewer earlier instances there is not enough history."""
MOST = 60
"""Earlier instances of a group that are counted, the newest."""
RECENT = 6
"""How many are the last few."""
WEIGHT_BEFORE = 8
"""The earlier instances of a group that the groups before it count as much as."""
_FIRST_WEIGHT = 1
_POINTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """When something comes that is not there: seconds from now, soonest first, and the share of each. The shares add up
    to 1. `ENDLESS` is the last of what is not certain.
    """

    seconds: tuple[float, ...]
    shares: tuple[float, ...]
    _up_to: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_up_to", (0.0, *accumulate(self.shares)))

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> Self:
        """Return the outlook of (seconds, share) in any order."""
        merged = [(at, math.fsum(share for _, share in same)) for at, same in groupby(sorted(points), _at)]
        return cls(seconds=tuple(at for at, _ in merged), shares=tuple(share for _, share in merged))

    @classmethod
    def certain(cls, seconds: float) -> Self:
        """Return the outlook of what comes in so many seconds."""
        return cls(seconds=(seconds,), shares=(1.0,))

    @classmethod
    def of_wait(cls, groups: Iterable[Sequence[float]], waited: float | None) -> Self:
        """Return what is left of a wait that has taken `waited` seconds, from the lengths of earlier ones, in groups.

        One that has not begun has waited None, and its whole length is left. One that begins in `s` seconds has waited
        minus `s`, and cannot end before that.

        >>> Outlook.of_wait([[60.0, 300.0, 600.0]], 120.0).seconds
        (0.0, 180.0, 480.0, inf)
        >>> Outlook.of_wait([[60.0, 300.0, 600.0, 900.0]], 120.0).shares
        (0.125, 0.25, 0.25, 0.25, 0.125)
        """
        since = 0.0 if waited is None else waited
        found = [(max(0.0, -since), 0.5), (ENDLESS, 0.5)]
        for number, lengths in enumerate(groups):
            left = [length - since for length in lengths if waited is None or length > waited]
            before = WEIGHT_BEFORE if number else _FIRST_WEIGHT
            whole = len(left) + before
            found = [(at, share * before / whole) for at, share in found] + [(at, 1 / whole) for at in left]
        return cls.of(found)

    def share_after(self, seconds: float) -> float:
        """Return the share that comes later than in so many seconds."""
        return math.fsum(self.shares[bisect_right(self.seconds, seconds) :])

    def share_after_both(self, other: "Outlook", seconds: float) -> float:
        """Return the share in which this and then another wait take longer than so many seconds together."""
        return math.fsum(
            share * (other.share_after(seconds - at) if at < ENDLESS else 1.0)
            for at, share in zip(self.seconds, self.shares, strict=True)
        )

    def then(self, other: "Outlook") -> "Outlook":
        """Return when this and then another wait have passed. Both and their sums are thinned out: each point becomes
        the latest of a 64th, so that none becomes sooner.
        """
        first, second = self._thinned(), other._thinned()
        return Outlook.of(
            (at + more, share * part)
            for at, share in zip(first.seconds, first.shares, strict=True)
            for more, part in zip(second.seconds, second.shares, strict=True)
        )._thinned()

    def or_later(self, other: "Outlook") -> "Outlook":
        """Return when both have come that come for one reason: at each time the less probable of them has come."""
        moments = sorted({*self.seconds, *other.seconds})
        after = [1.0, *(max(self.share_after(at), other.share_after(at)) for at in moments)]
        points = zip(moments, after, after[1:], strict=False)
        return Outlook.of((at, before - then) for at, before, then in points if before > then)

    @property
    def median(self) -> float:
        """In how many seconds half has come."""
        middle = bisect_left(self._up_to, 0.5) - 1
        return self.seconds[min(middle, len(self.seconds) - 1)]

    def _thinned(self) -> "Outlook":
        if len(self.seconds) <= _POINTS:
            return self
        up_to = self._up_to
        kept: dict[int, tuple[float, float]] = {}
        last = len(self.seconds) - 1
        for number, (at, share) in enumerate(zip(self.seconds, self.shares, strict=True)):
            part = -1 if number == 0 else _POINTS if number == last else int(up_to[number] * _POINTS)
            kept[part] = (at, share + (kept[part][1] if part in kept else 0.0))
        return Outlook.of(kept.values())


def _at(point: tuple[float, float]) -> float:
    return point[0]
