"""Path templates against Falcon's tests and code."""

import re
from collections.abc import Callable
from typing import Any

from feed_assets.definitions.lists.lookup import FeedLookup
from feed_assets.engines.partition_filters import render_filter
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.issues import SourceMap
from feed_assets.plan.compile import compile_plan
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import TableAddressError
from feed_assets.timing.templates import find_variables, parse_path_template, parse_table_address
from feed_assets.validation.scope import Scope

Case = dict[str, Any]
TABLE = "paths.json"
AS_OF = parse_datetime("2015-06-01T00:00Z")


def run_path_date(case: Case) -> None:
    found = parse_path_template(case["template"]).in_zone(parse_timezone(case["timezone"])).parse(case["path"])
    assert (None if found is None else render_datetime(found)) == case["expected"]


def run_value(case: Case) -> None:
    assert parse_path_template(f"${{{case['variable']}}}").matches(case["value"]) is case["expected"]


def run_match(case: Case) -> None:
    assert parse_path_template(case["template"]).matches(case["path"]) is case["expected"]


def feed_at(name: str, location: str) -> Feed:
    validity = {"c": {"validity": {"start": AS_OF}}}
    content = {"name": name, "frequency": "days(1)", "locations": {"data": location}, "clusters": validity}
    return Feed.model_validate(content)


def run_lookup(case: Case) -> None:
    cluster = Cluster(name="c", storage="hdfs://nn:8020")
    feeds = [feed_at(name, text) for text, names in case["templates"].items() for name in names]
    lookup = FeedLookup(Bundle(entities=(cluster, *feeds)))
    for path, expected in case["lookups"].items():
        assert [found.feed for found in lookup.find(path)] == expected


def run_evaluation(case: Case) -> None:
    template = parse_path_template(case["template"])
    assert template.render(parse_datetime(case["instance_time"])) == case["expected"]


def run_pattern(case: Case) -> None:
    assert str(list(find_variables(case["path"]) or ())) == case["expected"]


def run_table_uri(case: Case) -> None:
    try:
        address, parsed = parse_table_address(case["uri"]), case["parsed"]
    except TableAddressError:
        assert not case["valid"]
        return
    assert case["valid"]
    assert (address.database, address.table) == (parsed["database"], parsed["table"])
    assert [(key, value.text) for key, value in address.partition] == list(parsed["partitions"].items())
    if "dated_keys" in case:
        assert [key for key, value in address.partition if value.variables] == case["dated_keys"]


def run_table_partition(case: Case) -> None:
    assert parse_table_address(case["uri"]).template.text == case["expected"]


def run_table_identity(case: Case) -> None:
    """Two feeds lie in one place if they share the address by which overlaps are found."""

    def place(side: Case) -> str | None:
        catalog = side["catalog_url"].replace("${hcatNode}", "thrift://localhost:9083")
        cluster = Cluster(name="c", storage="memory://x", catalog=catalog)
        validity = {"c": {"validity": {"start": "2015-01-01T00:00Z"}}}
        feed = Feed(name="f", frequency="days(1)", table=side["uri"], clusters=validity)
        scope = Scope(bundle=Bundle(entities=(cluster, feed)), sources=SourceMap())
        return scope.find_address(feed, "c")

    assert (place(case["a"]) == place(case["b"])) is case["expected"]


def run_location_uri(case: Case) -> None:
    """The URL of an instance of a feed in a location on the storage of a cluster."""
    name_node = "hdfs://nn:8020"
    cluster = Cluster(name="c", storage=case["storage_url"].replace("${nameNode}", name_node))
    feed = feed_at("f", case["location"])
    record = compile_plan(Bundle(entities=(cluster, feed))).feeds["f", "c"]
    found = f"{record.store.url.rstrip('/')}/{record.path(AS_OF)}"
    assert found == case["expected"].replace("${nameNode}", name_node)


def run_table_template(case: Case) -> None:
    """Falcon's text of a table on a catalog, as the address that a feed names."""
    catalog, database, table, partitions = re.split(r"(?<=\w)/", case["template"], maxsplit=3)
    uri = f"catalog:{database}:{table}#{partitions}"
    run_table_uri({"uri": uri, "valid": case["valid"], "parsed": case["parsed"]})
    assert case["parsed"] is None or case["parsed"]["catalog_url"] == catalog


def run_partition_filter(case: Case) -> None:
    address = parse_table_address(case["uri"])
    assert render_filter([[(key, value.text) for key, value in address.partition]]) == case["expected"]


RUNNERS = {
    "path_date": run_path_date,
    "variable_value": run_value,
    "template_match": run_match,
    "path_lookup": run_lookup,
    "evaluate_template": run_evaluation,
    "date_pattern": run_pattern,
    "table_uri": run_table_uri,
    "table_partition_path": run_table_partition,
    "table_identical": run_table_identity,
    "location_uri": run_location_uri,
    "table_template": run_table_template,
    "table_partition_filter": run_partition_filter,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
