from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import TimeVariable, parse_path_template
from tests.timing.strategies import moments, sequences, zones
from tests.timing.test_sequence import sequence

UTC_ZONE = ZoneInfo("UTC")
NEW_YORK = ZoneInfo("America/New_York")
DAILY = parse_path_template("/data/${YEAR}-${MONTH}-${DAY}")
HOURLY = parse_path_template("/data/${YEAR}/${MONTH}/${DAY}/${HOUR}")


@pytest.mark.parametrize(
    "path",
    [
        "/data/2015-01-01_backup",
        "/data/2015-01-01/part-0",
        "/data/2015-01-01/",
        "/old/data/2015-01-01",
        "/data/2015-02-30",
        "/data/2015-13-01",
        "/data/0000-01-01",
        "/data/2015-1-1",
        "/data/2015-01-01\n",
        "/data/٢٠١٥-01-01",
    ],
)
def test_a_path_that_is_not_exactly_rendered_from_a_date_is_no_instance(path: str) -> None:
    assert DAILY.parse(path) is None
    assert not DAILY.matches(path)


def test_literal_text_is_never_a_pattern() -> None:
    template = parse_path_template("/a.b+(c)/100%/${YEAR}")
    path = template.render(datetime(2015, 1, 1, tzinfo=UTC))
    assert path == "/a.b+(c)/100%/2015"
    assert template.parse(path) == datetime(2015, 1, 1, tzinfo=UTC)
    assert template.parse("/aXb+(c)/100%/2015") is None


def test_hour_24_and_minute_60_are_refused() -> None:
    template = parse_path_template("/d/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}")
    assert template.parse("/d/2015/06/07/24/00") is None
    assert template.parse("/d/2015/06/07/23/60") is None


def test_repeated_variables_must_agree() -> None:
    template = parse_path_template("/d/${YEAR}/${YEAR}-${MONTH}")
    assert template.parse("/d/2014/2015-06") is None
    assert template.parse("/d/2015/2015-06") == datetime(2015, 6, 1, tzinfo=UTC)


def test_a_local_hour_that_is_skipped_has_no_path_and_a_repeated_one_is_the_second() -> None:
    assert HOURLY.in_zone(NEW_YORK).parse("/data/2015/03/08/02") is None
    assert HOURLY.in_zone(NEW_YORK).parse("/data/2015/11/01/01") == parse_datetime("2015-11-01T06:00Z")


def test_a_day_whose_midnight_is_skipped_has_a_path() -> None:
    zone = ZoneInfo("America/Sao_Paulo")
    assert DAILY.in_zone(zone).parse("/data/2018-11-04") == parse_datetime("2018-11-04T03:00Z")


def test_an_instance_in_the_middle_of_its_day_is_found_by_its_path() -> None:
    daily, template = sequence("2015-01-01T10:17Z", "days(1)", "America/New_York"), DAILY.in_zone(NEW_YORK)
    assert template.find_instance("/data/2015-03-08", daily) == parse_datetime("2015-03-08T09:17Z")
    assert template.find_instance("/data/2014-12-31", daily) is None
    every_other = sequence("2015-01-01T10:17Z", "days(2)")
    assert DAILY.find_instance("/data/2015-01-02", every_other) is None


def test_a_static_path_is_that_of_the_only_instance() -> None:
    static = parse_path_template("/data/fixed")
    once = sequence("2015-01-01T00:00Z", "days(1)", end="2015-01-02T00:00Z")
    assert static.is_static
    assert static.base == "/data/fixed"
    assert static.granularity is None
    assert static.matches("/data/fixed")
    assert static.parse("/data/fixed") is None
    assert static.find_instance("/data/fixed", once) == once.start
    assert static.find_instance("/data/other", once) is None


def test_the_parts_of_a_template() -> None:
    template = parse_path_template("s3://bucket/clicks/y=${YEAR}/${MONTH}${DAY}/x")
    assert template.base == "s3://bucket/clicks"
    assert template.variables == (TimeVariable.YEAR, TimeVariable.MONTH, TimeVariable.DAY)
    assert template.granularity is TimeVariable.DAY


def test_cluster_variables_are_replaced_and_missing_ones_named() -> None:
    template = parse_path_template("/${cluster.colo}/${cluster.tier}/${YEAR}")
    assert template.base == ""
    with pytest.raises(TemplateError, match="no value yet"):
        template.render(datetime(2015, 1, 1, tzinfo=UTC))
    with pytest.raises(TemplateError, match=r"no property 'tier'\. Known are colo, name"):
        template.with_cluster(name="primary", colo="nyc", properties={})
    replaced = template.with_cluster(name="primary", colo="nyc", properties={"tier": "hot"})
    assert replaced == parse_path_template("/nyc/hot/${YEAR}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/d/${YEARS}", "Did you mean \\${YEAR}"),
        ("/d/${day}", "Did you mean \\${DAY}"),
        ("/d/${YEAR", "not closed"),
        ("/d/${nameNode}", "Use "),
    ],
)
def test_unknown_variables_are_refused(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        parse_path_template(text)


@pytest.mark.parametrize(
    ("variables", "frequency", "covered"),
    [
        ("${YEAR}", "months(12)", True),
        ("${YEAR}", "months(1)", False),
        ("${YEAR}${MONTH}", "months(1)", True),
        ("${YEAR}${MONTH}", "days(31)", True),
        ("${YEAR}${MONTH}", "days(7)", False),
        ("${YEAR}${MONTH}${DAY}", "days(1)", True),
        ("${YEAR}${MONTH}${DAY}", "hours(24)", True),
        ("${YEAR}${MONTH}${DAY}", "hours(23)", False),
        ("${YEAR}${MONTH}${DAY}${HOUR}", "hours(1)", True),
        ("${YEAR}${MONTH}${DAY}${HOUR}", "minutes(90)", True),
        ("${YEAR}${MONTH}${DAY}${HOUR}", "minutes(45)", False),
        ("${YEAR}${MONTH}${HOUR}", "hours(1)", False),
        ("${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}", "minutes(1)", True),
        ("${MONTH}${DAY}", "days(1)", False),
    ],
)
def test_a_template_must_be_fine_enough_for_the_frequency(variables: str, frequency: str, covered: bool) -> None:
    assert parse_path_template(f"/d/{variables}").covers(parse_frequency(frequency)) is covered


def test_an_hourly_feed_in_a_zone_that_repeats_an_hour_has_two_instances_on_one_path() -> None:
    local = sequence("2013-10-01T00:00Z", "hours(1)", "America/New_York")
    hourly = HOURLY.in_zone(NEW_YORK)
    collision = hourly.find_collision(local)
    assert collision is not None
    assert "2013-11-03T05:00Z and 2013-11-03T06:00Z have the same path" in collision
    assert HOURLY.find_collision(local) is None
    assert (
        hourly.find_collision(sequence("2013-10-01T00:00Z", "hours(1)", "America/New_York", "2013-11-03T06:00Z"))
        is None
    )
    assert hourly.find_collision(sequence("2013-10-01T00:00Z", "hours(12)", "America/New_York")) is None


def test_elapsed_days_collide_only_where_the_clock_change_makes_them() -> None:
    daily = DAILY.in_zone(NEW_YORK)
    assert daily.find_collision(sequence("2013-07-01T16:00Z", "hours(24)", "America/New_York")) is None
    assert daily.find_collision(sequence("2013-07-01T04:00Z", "hours(24)", "America/New_York")) is not None
    assert daily.find_collision(sequence("2013-07-01T04:00Z", "days(1)", "America/New_York")) is None


@pytest.mark.parametrize(
    ("start", "frequency", "zone", "paths_in", "pair"),
    [
        ("2013-01-01T00:00Z", "days(1)", "Europe/London", "UTC", ("2013-03-31T00:00Z", "2013-03-31T23:00Z")),
        ("2013-11-01T04:00Z", "days(1)", "UTC", "America/New_York", ("2013-11-03T04:00Z", "2013-11-04T04:00Z")),
        ("2013-01-30T20:00Z", "months(1)", "UTC", "Asia/Shanghai", ("2013-02-28T20:00Z", "2013-03-30T20:00Z")),
        ("2017-02-28T16:00Z", "days(1)", "Etc/GMT-8", "UTC", None),
        ("2013-01-01T08:00Z", "days(1)", "America/Los_Angeles", "UTC", None),
        ("2013-01-31T16:00Z", "months(1)", "Etc/GMT-8", "UTC", None),
    ],
)
def test_days_and_months_of_one_zone_may_share_a_path_of_another(
    start: str, frequency: str, zone: str, paths_in: str, pair: tuple[str, str] | None
) -> None:
    template = parse_path_template("/d/${YEAR}-${MONTH}" + ("-${DAY}" if frequency == "days(1)" else ""))
    reason = template.in_zone(ZoneInfo(paths_in)).find_collision(sequence(start, frequency, zone))
    why = f"have the same path, because the instances go by {zone} and their paths by {paths_in}"
    assert reason == (pair and f"{pair[0]} and {pair[1]} {why}")


def test_too_coarse_a_template_names_the_variable_that_is_missing() -> None:
    assert DAILY.find_collision(sequence("2013-01-01T00:00Z", "hours(1)")) == (
        "without ${HOUR} several instances of hours(1) have the same path"
    )


pieces = st.lists(
    st.one_of(
        st.sampled_from([f"${{{variable}}}" for variable in TimeVariable]),
        st.sampled_from(["/", "-", "_", "%", "a.b", "dt=", "$", "-{", "}", "é"]),
    ),
    min_size=1,
    max_size=12,
).map("".join)


@given(text=pieces, moment=moments, zone=zones)
def test_what_is_rendered_matches_and_parses_to_the_same_path(text: str, moment: datetime, zone: ZoneInfo) -> None:
    template = parse_path_template(f"/d/${{YEAR}}/{text}")
    path = template.in_zone(zone).render(moment)
    parsed = template.in_zone(zone).parse(path)
    if parsed is not None:
        assert template.in_zone(zone).render(parsed) == path
    if template.granularity is not None and set(template.variables) == set(
        list(TimeVariable)[: len(template.variables)]
    ):
        assert template.matches(path)
        assert parsed is not None


@given(text=pieces, path=st.text(alphabet="/d0123456789-", max_size=20), zone=zones)
def test_parsing_any_path_gives_nothing_or_a_round_trip(text: str, path: str, zone: ZoneInfo) -> None:
    template = parse_path_template(f"/d{text}")
    parsed = template.in_zone(zone).parse(f"/d{path}")
    assert parsed is None or template.in_zone(zone).render(parsed) == f"/d{path}"


@given(seq=sequences(), n=st.integers(min_value=0, max_value=400), zone=st.none() | zones)
def test_each_instance_is_found_by_its_path_or_shares_it(seq: InstanceSequence, n: int, zone: ZoneInfo | None) -> None:
    if seq.size is not None and n >= seq.size:
        return
    template = parse_path_template("/d/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}")
    template = template.in_zone(zone or seq.timezone)
    path = template.render(seq.at(n))
    found = template.find_instance(path, seq)
    assert found is not None
    assert template.render(found) == path
    if template.find_collision(seq) is None:
        assert found == seq.at(n)
