"""Availability of instances against Falcon's feed instance listing, on a local store."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Availability

Case = dict[str, Any]
TABLE = "feed_listing.json"


def run_status(case: Case) -> None:
    with tempfile.TemporaryDirectory() as root:
        if "directory" in case:
            instance = Path(root, "instance")
            instance.mkdir()
            for name, size in case["directory"].items():
                (instance / name).write_bytes(b"x" * size)
        (look,) = LocalStore(root).look(["instance"], case.get("availability_flag"))
    assert look.availability == case["expected"]
    if "expected_size" in case:  # a missing instance has no size; Falcon renders that as -1
        assert (-1 if look.availability is Availability.MISSING else look.bytes) == case["expected_size"]


RUNNERS = {"status": run_status}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
