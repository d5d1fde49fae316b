"""What a walk finds is what the template itself says of every name, one by one."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from time import tzset
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.common import LocationKind
from feed_assets.instances.arrival.instance_paths import PathMatcher, find_nominal_time, plain_template
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import RetainedLocation
from feed_assets.retention.rules.eligibility import collect_candidates
from feed_assets.storage.port import Choose, FolderNames, InstanceStore
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import PathTemplate, TimeVariable, parse_path_template
from tests.drills import sized

ODD_TIMES = {
    "UTC": ["1895-01-01", "2013-10-01", "2015-02-20", "2099-12-20"],
    "America/New_York": ["2013-11-01", "2013-03-08", "1895-01-01", "2099-12-20", "2100-03-10"],
    "Asia/Kolkata": ["2013-11-01", "1941-09-29"],
    "Australia/Lord_Howe": ["2013-10-03", "2014-04-03"],
    "America/Sao_Paulo": ["2013-10-18", "2014-02-14"],
    "America/Havana": ["2013-03-08", "2013-11-01"],
    "Pacific/Apia": ["2011-12-28"],
    "Etc/GMT+5": ["2013-11-01"],
    "Europe/Amsterdam": ["1937-06-29", "1940-05-14"],
}
"""Time zones, and when something is odd in them: clock changes at midnight, of half an hour or a day, or unknown."""

EPOCHS = [datetime(1895, 1, 1, tzinfo=UTC), datetime(2013, 10, 1, tzinfo=UTC), datetime(2099, 12, 1, tzinfo=UTC)]
SPANS = {
    TimeVariable.YEAR: timedelta(days=366),
    TimeVariable.MONTH: timedelta(days=31),
    TimeVariable.DAY: timedelta(days=1),
    TimeVariable.HOUR: timedelta(hours=1),
    TimeVariable.MINUTE: timedelta(minutes=1),
    TimeVariable.SECOND: timedelta(seconds=1),
}


class NamedStore:
    """The names of a storage, and nothing else; it walks as a store does, in the order of the names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.tree: dict[str, object] = {}
        self.asked: list[str] = []
        for path in paths:
            place = self.tree
            for part in path.split("/"):
                place = cast("dict[str, object]", place.setdefault(part, {}))

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        place: object = self.tree
        for part in base.split("/") if base else ():
            if not isinstance(place, dict) or part not in place:
                return
            place = place[part]
        assert isinstance(place, dict)
        yield from self._below(place, depth, choose, base, "")

    def _below(
        self, place: dict[str, object], depth: int, choose: Choose, base: str, folder: str
    ) -> Iterator[FolderNames]:
        self.asked.append(folder)
        chosen = list(choose(folder, list(place)))
        assert len(chosen) == len(set(chosen))
        assert set(chosen) <= set(place)
        if depth == 1:
            yield FolderNames("".join(f"{part}/" for part in (base, folder) if part), chosen)
            return
        for name in chosen:
            inner = place[name]
            assert isinstance(inner, dict)
            yield from self._below(inner, depth - 1, choose, base, f"{folder}/{name}" if folder else name)


def by_brute_force(template: PathTemplate, path: str, sequence: InstanceSequence) -> datetime | None:
    """The last instance that has this very path, of all that are near; else the time that the path names."""
    named = template.parse(path)
    if named is None or template.granularity is None:
        return None
    near = sequence.between(named - timedelta(days=2), named + SPANS[template.granularity] + timedelta(days=2))
    return max((time for time in near if template.render(time) == path), default=named)


def found_in(
    store: NamedStore, template: PathTemplate, sequence: InstanceSequence, before: datetime | None
) -> dict[str, datetime]:
    location = RetainedLocation(kind=LocationKind.DATA, store=StoreAddress(url="memory://names"), template=template)
    found = collect_candidates(cast("InstanceStore", store), location, sequence, before)
    times = dict(zip(*found, strict=True))
    assert len(times) == len(found.paths)
    return times


_TEXT = st.sampled_from(["", "", "-", "x", "ds=", "%", ".", "_", "0", "é"])
_VARIABLE = st.sampled_from([f"${{{variable}}}" for variable in TimeVariable])
_PARTS = st.lists(st.builds("{}{}{}".format, _TEXT, _VARIABLE, _TEXT), min_size=1, max_size=7)
_USUAL = st.sampled_from(
    [
        "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}",
        "/clicks/${YEAR}-${MONTH}-${DAY}-${HOUR}",
        "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}",
        "${YEAR}/${MONTH}/${DAY}",
        "/a/b//${YEAR}${MONTH}/${DAY}/x/${HOUR}/y/",
        "/clicks/${DAY}.${MONTH}.${YEAR}/${HOUR}",
        "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}/of/${YEAR}",
        "/clicks/${YEAR}/${MONTH}",
        "/clicks/${YEAR}",
        "/clicks/${MONTH}/${YEAR}/${HOUR}",
    ]
)


@st.composite
def templates(draw: st.DrawFn) -> PathTemplate:
    """Any that name a year: the usual ones, and variables in any order, repeated, with text and folders between."""
    if draw(st.booleans()):
        return parse_path_template(draw(_USUAL))
    parts = [*draw(_PARTS), "${YEAR}"]
    parts = draw(st.permutations(parts))
    joints = draw(st.lists(st.sampled_from(["", "/"]), min_size=len(parts), max_size=len(parts)))
    text = draw(st.sampled_from(["", "/", "/clicks/"])) + "".join(a + b for a, b in zip(joints, parts, strict=True))
    zone = parse_timezone(draw(st.sampled_from(list(ODD_TIMES))))
    return parse_path_template("/".join(part for part in text.split("/") if part not in (".", ".."))).in_zone(zone)


@st.composite
def sequences(draw: st.DrawFn, template: PathTemplate) -> InstanceSequence:
    """Some whose instances are few enough to look at each of them."""
    is_fine = template.granularity in (TimeVariable.DAY, TimeVariable.HOUR, TimeVariable.MINUTE)
    often = ["minutes(15)", "minutes(45)", "hours(1)", "hours(5)"] if is_fine else []
    frequency = draw(st.sampled_from([*often, "hours(24)", "days(1)", "days(2)", "months(1)", "months(12)"]))
    zone = draw(st.one_of(st.just(template.zone.key), st.sampled_from(list(ODD_TIMES))))
    near = datetime.fromisoformat(draw(st.sampled_from(ODD_TIMES[zone]))).replace(tzinfo=UTC)
    start = near + timedelta(minutes=draw(st.sampled_from([0, 0, 0, 17, 60, 240, 1439, -10_080])))
    length = draw(st.sampled_from([None, None, timedelta(0), timedelta(hours=50), timedelta(days=20)]))
    return InstanceSequence(
        start=start,
        frequency=parse_frequency(frequency),
        timezone=parse_timezone(zone),
        end=None if length is None else start + length,
    )


def spoilt(path: str) -> st.SearchStrategy[str]:
    """Names that look alike: other digits, lengths and dates, and what people and programs write beside them."""
    inside = [("+", 0), ("", 1), ("0", 0), ("\u0661", 1), ("\uff11", 1), ("\udcff", 1)]
    inside += [(text, 2) for text in ("31", "00", "99", "-1")]
    beside = [path + "_backup", path + "\n", path + " ", "+" + path, path.swapcase()]
    replaced = st.builds(
        lambda at, edit: path[:at] + edit[0] + path[at + edit[1] :], st.integers(0, len(path)), st.sampled_from(inside)
    )
    return st.one_of(replaced, st.sampled_from(beside))


_AT_ENDS = "9999"
"""A year in which the looking at neighbours would leave the calendar; `0001` cannot come about."""


@st.composite
def stored(draw: st.DrawFn, template: PathTemplate, sequence: InstanceSequence) -> list[str]:
    """Paths of instances and of other times near, of dates far away, and look-alikes."""
    plain = plain_template(template)
    close = st.integers(-20, 130).map(lambda hours: sequence.start + timedelta(hours=hours))
    near = st.integers(-3_000, 40_000).map(lambda minutes: sequence.start + timedelta(minutes=minutes))
    far = st.sampled_from([datetime(3, 1, 3, tzinfo=UTC), datetime(9990, 12, 30, 23, tzinfo=UTC), *EPOCHS])
    times = draw(st.lists(st.one_of(close, close, near, far), min_size=1, max_size=30))
    paths = [plain.render(time) for time in times]
    paths += [draw(spoilt(path)) for path in draw(st.lists(st.sampled_from(paths), max_size=15))]
    return [path for path in paths if path and "//" not in path and path.strip("/") == path and _AT_ENDS not in path]


@pytest.mark.sample
@settings(max_examples=sized(75, 300), deadline=None)
@given(data=st.data())
def test_row_51_a_walk_finds_exactly_what_the_template_says_of_every_name(data: st.DataObject) -> None:
    template = data.draw(templates())
    sequence = data.draw(sequences(template))
    paths = data.draw(stored(template, sequence))
    plain, store = plain_template(template), NamedStore(paths)
    depth = plain.text.count("/")
    there = {path for path in paths if path.count("/") == depth}
    there |= {"/".join(path.split("/")[: depth + 1]) for path in paths if path.count("/") > depth}
    times = {path: by_brute_force(plain, path, sequence) for path in there}
    expected = {path: time for path, time in times.items() if time is not None}
    bound = st.sampled_from(sorted(expected.values())) if expected else st.just(sequence.start)
    shift = st.sampled_from([timedelta(0), timedelta(minutes=1), timedelta(hours=5), timedelta(days=-40)])
    before = data.draw(st.one_of(st.none(), bound, st.builds(datetime.__add__, bound, shift)))
    assert found_in(store, template, sequence, before) == {
        path: time for path, time in expected.items() if before is None or time < before
    }
    since = data.draw(st.one_of(st.none(), bound, st.builds(datetime.__add__, bound, shift)))
    matcher = PathMatcher(template, sequence, before, since)
    walked = store.walk_folders(matcher.base, matcher.depth, matcher.choose)
    instances = {plain.find_instance(path, sequence) for path in there} - {None}
    assert {time for found in walked for time in matcher.find_instances(found.folder, found.names)} == {
        time
        for time in cast("set[datetime]", instances)
        if (before is None or time < before) and (since is None or time >= since)
    }


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("frequency", ["minutes(17)", "days(1)", "months(7)"])
def test_dates_at_the_ends_of_the_calendar_do_no_harm(zone: str, frequency: str) -> None:
    start = datetime(2013, 11, 1, 0, 17, tzinfo=UTC)
    sequence = InstanceSequence(start=start, frequency=parse_frequency(frequency), timezone=parse_timezone(zone))
    dates = ["0000-01-01", "0001-01-01", "0001-01-02", "9999-12-30", "9999-12-31", "10000-01-01"]
    for text in ("${YEAR}-${MONTH}-${DAY}/${HOUR}", "${YEAR}-${MONTH}-${DAY}"):
        template = parse_path_template(text).in_zone(sequence.timezone)
        names = NamedStore(f"{date}/{hour:02d}" if "HOUR" in text else date for date in dates for hour in range(24))
        for before in (None, datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)):
            found = found_in(names, template, sequence, before)
            assert set(found) <= {path for path in found if template.parse(path)}
            assert {path[:4] for path in found} >= ({"0001", "9999"} if before is None else set())


NEW_YORK = parse_timezone("America/New_York")


def in_new_york(text: str) -> PathTemplate:
    return parse_path_template(text).in_zone(NEW_YORK)


HOURLY = in_new_york("d/${YEAR}/${MONTH}/${DAY}/${HOUR}")
HOURLY_FOLDERS = in_new_york("d/${YEAR}-${MONTH}-${DAY}/${HOUR}")
HOURLY_FILES = in_new_york("d/${YEAR}-${MONTH}-${DAY}-${HOUR}")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def hourly_in_new_york(start: str, end: str | None = None, frequency: str = "hours(1)") -> InstanceSequence:
    return InstanceSequence(
        start=datetime.fromisoformat(start).replace(tzinfo=UTC),
        frequency=parse_frequency(frequency),
        timezone=NEW_YORK,
        end=None if end is None else datetime.fromisoformat(end).replace(tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("end", "hour"), [(None, 6), ("2013-11-03T06:00", 5), ("2013-11-03T07:00", 6), ("2013-11-03T05:00", 6)]
)
def test_of_an_hour_that_occurs_twice_the_last_instance_counts(end: str | None, hour: int) -> None:
    sequence = hourly_in_new_york("2013-11-01", end)
    expected = datetime(2013, 11, 3, hour, tzinfo=UTC)
    assert find_nominal_time(HOURLY, "d/2013/11/03/01", sequence) == expected
    assert found_in(NamedStore(["d/2013/11/03/01"]), HOURLY, sequence, None) == {"d/2013/11/03/01": expected}


def test_a_path_that_several_instances_share_is_as_old_as_the_youngest() -> None:
    sequence = hourly_in_new_york("2013-01-01T00:17")
    shared = [("${YEAR}", "2013", "2014-01-01T04:17"), ("${YEAR}-${MONTH}", "2013-02", "2013-03-01T04:17")]
    shared += [
        ("${YEAR}-${MONTH}-${DAY}", "2013-11-03", "2013-11-04T04:17"),
        ("${MONTH}.${YEAR}.${HOUR}", "02.2013.05", "2013-02-28T10:17"),
    ]
    for text, path, last in shared:
        expected = datetime.fromisoformat(last).replace(tzinfo=UTC)
        assert find_nominal_time(in_new_york(text), path, sequence) == expected
        assert found_in(NamedStore([path]), in_new_york(text), sequence, None) == {path: expected}
        assert found_in(NamedStore([path]), in_new_york(text), sequence, expected) == {}


def test_what_is_no_instance_is_as_old_as_its_name_says() -> None:
    sequence = hourly_in_new_york("2013-11-01T00:17", "2013-11-02T00:00")
    for path, time in [("d/2013/10/31/19", "2013-10-31T23:00"), ("d/2013/11/02/05", "2013-11-02T09:00")]:
        assert find_nominal_time(HOURLY, path, sequence) == at(time)
        assert found_in(NamedStore([path]), HOURLY, sequence, None) == {path: at(time)}
    ended = hourly_in_new_york("2013-06-01T00:17", "2013-06-20T00:00")
    assert found_in(NamedStore(["d/2013/06/20/05"]), HOURLY, ended, None) == {"d/2013/06/20/05": at("2013-06-20T09:00")}
    assert find_nominal_time(HOURLY, "d/2013/11/01/19", sequence) == datetime(2013, 11, 1, 23, 17, tzinfo=UTC)


@pytest.mark.parametrize("text", ["/d//${YEAR}/", "d/${YEAR}", "//d/${YEAR}//"])
def test_a_store_knows_no_empty_folders(text: str) -> None:
    assert plain_template(in_new_york(text)).text == "d/${YEAR}"


def test_folders_of_other_years_months_and_days_are_not_entered() -> None:
    days = [
        f"d/{year}/{month:02d}/{day:02d}/05" for year in (2012, 2013, 2014) for month in (1, 6, 12) for day in (1, 30)
    ]
    store = NamedStore([*days, "d/2013/06/31/05", "d/2013/6/01/05", "d/2013/06/01_old/05", "d/x/06/01/05"])
    found = found_in(store, HOURLY, hourly_in_new_york("2010-01-01"), datetime(2013, 6, 20, tzinfo=UTC))
    assert sorted(found) == [day for day in days if day < "d/2013/06/20"]
    assert set(store.asked) == {"", *(day[2:6] for day in days if day < "d/2014"), *_parents(found)}


def _parents(paths: Iterable[str]) -> set[str]:
    """The folders above, below `d`, to the days."""
    return {"/".join(path.split("/")[1:depth]) for path in paths for depth in (2, 3, 4)} | {"2013/01", "2012/12"}


def test_a_day_that_is_only_partly_old_gives_its_old_hours() -> None:
    for text in (
        "d/${YEAR}/${MONTH}/${DAY}/${HOUR}",
        "d/${YEAR}-${MONTH}-${DAY}-${HOUR}",
        "d/${YEAR}${MONTH}${DAY}/${HOUR}${MINUTE}",
    ):
        template, sequence = in_new_york(text), hourly_in_new_york("2013-06-01")
        paths = [template.render(time) for time in sequence.between(sequence.start, sequence.start + timedelta(days=4))]
        for hour in range(24, 72):
            before = sequence.start + timedelta(hours=hour)
            assert len(found_in(NamedStore(paths), template, sequence, before)) == hour


@pytest.mark.parametrize("layout", ["d/${YEAR}-${MONTH}-${DAY}-${HOUR}", "d/${YEAR}/${MONTH}/${DAY}/${HOUR}"])
@pytest.mark.parametrize("before", [None, "2013-11-03T06:00", "2013-12-24T17:00"])
def test_the_hours_of_a_year_are_found_with_their_times(layout: str, before: str | None) -> None:
    template, sequence = in_new_york(layout), hourly_in_new_york("2013-01-01", "2014-01-01T05:00")
    bound = None if before is None else at(before)
    assert sequence.end is not None
    last = {template.render(time): time for time in sequence.between(sequence.start, sequence.end)}
    found = found_in(NamedStore(last), template, sequence, bound)
    assert found == {path: time for path, time in last.items() if bound is None or time < bound}


def test_an_hour_that_the_clocks_skip_has_no_path_in_any_century() -> None:
    template = in_new_york("d/${YEAR}-${MONTH}-${DAY}/${HOUR}")
    for day in ("2013-03-10", "2150-03-08"):
        names = NamedStore(f"d/{day}/{hour:02d}" for hour in range(24))
        found = found_in(names, template, hourly_in_new_york("2010-01-01"), None)
        assert {path[-2:] for path in found} == {f"{hour:02d}" for hour in range(24)} - {"02"}
        assert found[f"d/{day}/03"] - found[f"d/{day}/01"] == timedelta(hours=1)


def test_of_the_last_names_exactly_the_wanted_are_found() -> None:
    """On a usual day, on one of a clock change, and where a date is cut off by the moment; the walk chooses all."""
    for start, day, before, hours in (
        ("2013-06-01", "2013-06-20", "2013-06-20T16:00", 12),
        ("2013-06-01", "2013-06-20", "2013-06-20T04:00", 0),
        ("2013-06-01", "2013-06-20", "2013-06-21T04:00", 24),
        ("2013-11-01", "2013-11-03", "2013-11-03T16:00", 11),
        ("2013-11-01", "2013-11-03", "2013-11-04T05:00", 24),
    ):
        names = [f"{hour:02d}" for hour in range(24)]
        sequence, bound = hourly_in_new_york(start), at(before)
        folders = PathMatcher(HOURLY_FOLDERS, sequence, bound)
        assert folders.choose(day, [*names, "24"]) == [*names, "24"]
        paths, moments = folders.find_times(f"d/{day}/", [*names, "24", "5"])
        assert paths == [f"d/{day}/{name}" for name in names[:hours]]
        assert moments == [find_nominal_time(HOURLY_FOLDERS, path, sequence) for path in paths]
        files = PathMatcher(HOURLY_FILES, sequence, bound)
        assert files.choose("", [day, "x"]) == [day, "x"]
        paths, moments = files.find_times("d/", [f"{day}-{name}" for name in [*names, "24", "x"]])
        assert paths == [f"d/{day}-{name}" for name in names[:hours]]
        assert moments == [find_nominal_time(HOURLY_FILES, path, sequence) for path in paths]
        assert all(time < bound for time in moments)
    swapped = PathMatcher(in_new_york("d/${MONTH}/${YEAR}"), hourly_in_new_york("2013-06-01"), at("2014-01-01"))
    assert swapped.find_times("d/06/", ["2013", "2014"])[0] == ["d/06/2013"]
    for before, years in {"2014-01-01T04:00": ["2012"], "2014-01-01T04:01": ["2012", "2013"]}.items():
        yearly = PathMatcher(in_new_york("d/${YEAR}"), hourly_in_new_york("2013-06-01"), at(before))
        assert yearly.find_times("d/", ["2012", "2013", "2014"])[0] == [f"d/{year}" for year in years]


def test_a_folder_is_entered_if_it_can_hold_something_from_before_the_moment() -> None:
    """In any time zone: what begins up to a day later by the clock is entered, too."""
    hourly = hourly_in_new_york("2010-01-01")
    days = ["01", "19", "20", "21", "22"]
    assert PathMatcher(HOURLY, hourly, at("2013-06-20T00:00")).choose("2013/06", days) == ["01", "19", "20"]
    assert PathMatcher(HOURLY, hourly, at("2013-06-20T00:01")).choose("2013/06", days) == ["01", "19", "20", "21"]
    assert PathMatcher(HOURLY, hourly, None).choose("2013/06", [*days, "31", "1"]) == days
    autumn = PathMatcher(HOURLY, hourly, at("2013-11-03T00:00"))
    assert autumn.choose("2013/11", ["02", "03", "04", "05"]) == ["02", "03"]
    months = PathMatcher(HOURLY, hourly, at("2013-05-31T00:01"))
    assert months.choose("2013", ["04", "05", "06", "07"]) == ["04", "05", "06"]


def test_a_date_whose_times_lie_in_several_folders_is_known_in_each() -> None:
    template = in_new_york("d/${YEAR}-${MONTH}-${DAY}/${HOUR}/${MINUTE}")
    paths = [f"d/2013-06-02/{hour:02d}/{minute}" for hour in range(24) for minute in ("00", "15", "60")]
    found = found_in(NamedStore(paths), template, hourly_in_new_york("2013-06-01", frequency="minutes(15)"), None)
    assert sorted(found) == [path for path in paths if not path.endswith("60")]


def test_a_template_without_a_date_has_no_instances() -> None:
    for text in ("d/${HOUR}", "d/${HOUR}/x-${MINUTE}", "d/${MONTH}/${DAY}"):
        path = in_new_york(text).render(at("2013-06-01"))
        assert found_in(NamedStore([path]), in_new_york(text), hourly_in_new_york("2013-06-01"), None) == {}


def test_the_zone_of_the_machine_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    tzset()
    try:
        found = found_in(NamedStore(["d/2013/06/02/05"]), HOURLY, hourly_in_new_york("2013-06-01"), None)
    finally:
        monkeypatch.undo()
        tzset()
    assert found == {"d/2013/06/02/05": at("2013-06-02T09:00")}


@pytest.mark.parametrize("frequency", ["hours(24)", "days(1)"])
def test_a_day_is_as_old_as_its_instance_in_the_middle_of_it(frequency: str) -> None:
    template = parse_path_template("d/${YEAR}-${MONTH}-${DAY}")
    sequence = InstanceSequence(
        start=at("2013-06-01T05:00"), frequency=parse_frequency(frequency), timezone=parse_timezone("UTC")
    )
    assert found_in(NamedStore(["d/2013-06-20"]), template, sequence, None) == {"d/2013-06-20": at("2013-06-20T05:00")}
    assert found_in(NamedStore(["d/2013-06-20"]), template, sequence, at("2013-06-20T05:00")) == {}
