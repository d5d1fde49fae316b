"""What an eviction says in Falcon's words."""

from datetime import UTC, datetime

from feed_assets.retention.running import render_evicted_paths, render_evicted_times
from feed_assets.timing.dates import parse_timezone
from tests.retention.reports import parse_evicted_paths


def test_row_53_the_paths_are_one_line_that_reads_back() -> None:
    paths = ["clicks/2013/11/01", "clicks/2013/11/02"]
    assert render_evicted_paths(paths) == "instancePaths=clicks/2013/11/01,clicks/2013/11/02"
    assert parse_evicted_paths(render_evicted_paths(paths) + "\n") == paths
    assert parse_evicted_paths(render_evicted_paths([])) == []


def test_row_53_a_comma_in_a_path_does_not_part_it() -> None:
    assert parse_evicted_paths(render_evicted_paths(["[2013,eu]", "b"])) == ["[2013;eu]", "b"]


def test_row_53_times_are_those_of_the_zone_of_the_feed() -> None:
    times = [datetime(2013, 11, 1, 3, 5, tzinfo=UTC), datetime(213, 1, 2, tzinfo=UTC)]
    assert render_evicted_times(times, parse_timezone("UTC")) == "instances=201311010305,021301020000"
    assert render_evicted_times(times[:1], parse_timezone("America/New_York")) == "instances=201310312305"
    assert render_evicted_times([], parse_timezone("UTC")) == "instances=NULL"
