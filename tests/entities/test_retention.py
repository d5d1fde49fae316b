"""What retention can say, in which form, and what it cannot."""

from typing import Any

import pytest
from pydantic import ValidationError

from feed_assets.entities.common import LocationKind, Locations, Retention
from feed_assets.entities.feed import KEEP_BEYOND_VALIDITY, Feed
from feed_assets.entities.fields import Size, parse_size
from feed_assets.timing.sequence import parse_frequency


def refusal(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Retention.model_validate(fields)
    (error,) = caught.value.errors()
    return str(error["msg"])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("500B", 500),
        ("1K", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1Ki", 1024),
        ("3 MB", 3_000_000),
        (" 10GiB ", 10 * 1024**3),
        ("2TB", 2 * 10**12),
        ("2PiB", 2 * 1024**5),
        (4096, 4096),
        (Size(7), 7),
    ],
)
def test_a_size_is_a_number_of_bytes(text: object, size: int) -> None:
    found = Retention.model_validate({"max_bytes": text}).max_bytes
    assert found == Size(size)
    assert parse_size(found.render()) == found


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "01GB",
        "-1",
        "1.5GB",
        "1 0",
        "10gib",
        "GB",
        "",
        "1e9",
        "٣MB",
        "1KBB",
        "1B\n2B",
        0,
        -5,
        1.5,
        True,
        None,
        [],
        "9" * 19,
    ],
)
def test_anything_else_is_none(value: object) -> None:
    if value is None:
        assert Retention.model_validate({"max_bytes": None}).max_bytes is None
        return
    assert "a size is expected" in refusal(max_bytes=value)
    assert refusal(max_bytes=value).endswith("Write for example 500MB or 10GiB.")


def test_a_size_is_written_as_short_as_it_is_exact() -> None:
    sizes = [1, 999, 1000, 1024, 1536, 1_000_000, 1024**2, 5 * 10**12, 3 * 1024**5, 10**18]
    written = ["1B", "999B", "1KB", "1KiB", "1536B", "1MB", "1MiB", "5TB", "3PiB", "1000PB"]
    assert [Size(size).render() for size in sizes] == written
    assert Retention(limit="days(1)", max_bytes="1048576").model_dump(mode="json")["max_bytes"] == "1MiB"


@pytest.mark.parametrize("share", [0, -0.1, 1.1, "x", True])
def test_a_share_is_above_nothing_and_at_most_the_whole(share: object) -> None:
    refusal(sweep_limits={"share": share})
    assert Retention.model_validate({"sweep_limits": {"share": "0.25"}}).sweep_limits.share == 0.25


@pytest.mark.parametrize(
    "fields",
    [
        {"keep_newest": -1},
        {"max_instances": 0},
        {"sweep_limits": {"instances": 0}},
        {"limit": "hours(0)"},
        {"trash": "x"},
        {"frequency": "weekly"},
    ],
)
def test_numbers_and_times_have_their_bounds(fields: dict[str, Any]) -> None:
    refusal(**fields)


def test_a_name_is_written_once() -> None:
    assert refusal(until_read_by=["daily", "daily"]) == "'daily' is written twice. Write it once."
    assert "is not a name" in refusal(until_replicated_to=["back up"])


def test_an_archive_is_for_what_is_archived() -> None:
    assert "archive_to is written, but the action is 'delete'" in refusal(limit="days(1)", archive_to="/old")


def test_nothing_need_be_said_of_what_has_a_default() -> None:
    retention = Retention()
    assert (retention.limit, retention.frequency, retention.keep_newest) == (None, None, 0)
    assert (retention.trash, retention.after_validity) == (parse_frequency("days(7)"), True)
    limits = retention.sweep_limits
    assert (limits.share, limits.instances, limits.bytes) == (0.5, 10_000, None)


@pytest.mark.parametrize(
    ("retention", "value", "ends"),
    [
        (None, None, False),
        (None, "true", True),
        ({}, "True ", True),
        ({}, "false", False),
        ({"after_validity": False}, None, True),
        ({"after_validity": False}, "false", True),
        ({"after_validity": True}, "true", True),
    ],
)
def test_retention_ends_with_the_validity_where_either_says_so(
    retention: dict[str, Any] | None, value: str | None, ends: bool
) -> None:
    entry = {"validity": {"start": "2015-01-01T00:00Z"}, **({} if retention is None else {"retention": retention})}
    properties = {} if value is None else {KEEP_BEYOND_VALIDITY: value}
    feed = Feed.model_validate(
        {"name": "a", "frequency": "hours(1)", "clusters": {"primary": entry}, "properties": properties}
    )
    assert feed.retention_ends_on("primary") is ends


def test_locations_are_found_by_their_kind() -> None:
    locations = Locations(data="/d", meta="/m")
    assert [locations.find(kind) for kind in LocationKind] == ["/d", None, "/m", None]
