"""Hypothesis strategies: zones with unusual clocks, sequences, expressions and windows over them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit

ZONES = (
    "UTC",
    "America/New_York",
    "America/Los_Angeles",
    "America/Sao_Paulo",  # skips midnight until 2018
    "Atlantic/Azores",  # repeats midnight
    "America/St_Johns",  # until 2011 clocks changed at 00:01
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # changes by half an hour
    "Pacific/Apia",  # has no 30 December 2011
    "Africa/Casablanca",
    "Europe/Dublin",
)

zones = st.sampled_from(ZONES).map(ZoneInfo)

_FIRST, _MINUTES = datetime(2005, 1, 1, tzinfo=UTC), 22 * 366 * 24 * 60

moments = st.integers(min_value=0, max_value=_MINUTES).map(lambda minutes: _FIRST + timedelta(minutes=minutes))

frequencies = st.one_of(
    st.builds(Frequency, unit=st.just(Unit.MINUTES), count=st.sampled_from((1, 7, 15, 45, 90, 1440))),
    st.builds(Frequency, unit=st.just(Unit.HOURS), count=st.sampled_from((1, 2, 5, 6, 24, 48))),
    st.builds(Frequency, unit=st.just(Unit.DAYS), count=st.sampled_from((1, 2, 7, 10))),
    st.builds(Frequency, unit=st.just(Unit.MONTHS), count=st.sampled_from((1, 2, 3, 12))),
)


@st.composite
def sequences(draw: st.DrawFn, *, zone: st.SearchStrategy[ZoneInfo] = zones) -> InstanceSequence:
    """Sequences with and without an end, starting anywhere or at a local midnight or hour."""
    timezone, start = draw(zone), draw(moments)
    match draw(st.sampled_from(("anywhere", "midnight", "hour"))):
        case "midnight":
            start = start.astimezone(timezone).replace(hour=0, minute=0, fold=0).astimezone(UTC)
        case "hour":
            start = start.replace(minute=0)
    length = draw(st.one_of(st.none(), st.integers(min_value=0, max_value=3000)))
    return InstanceSequence(
        start=start,
        frequency=draw(frequencies),
        timezone=timezone,
        end=None if length is None else start + timedelta(days=length),
    )


def _small(limit: int) -> st.SearchStrategy[int]:
    return st.one_of(st.just(0), st.integers(min_value=-limit, max_value=limit))


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Texts of time expressions that do not look at data."""
    hours, minutes, days, months = draw(_small(50)), draw(_small(90)), draw(_small(40)), draw(_small(14))
    weekday = draw(st.sampled_from(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")))
    return draw(
        st.sampled_from(
            (
                f"now({hours},{minutes})",
                f"today({hours},{minutes})",
                f"yesterday({hours},{minutes})",
                f"tomorrow({hours},{minutes})",
                f"currentWeek('{weekday}',{hours},{minutes})",
                f"lastWeek('{weekday}',{hours},{minutes})",
                f"currentMonth({days},{hours},{minutes})",
                f"lastMonth({days},{hours},{minutes})",
                f"nextMonth({days},{hours},{minutes})",
                f"currentYear({months},{days},{hours},{minutes})",
                f"lastYear({months},{days},{hours},{minutes})",
            )
        )
    )
