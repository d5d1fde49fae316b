import subprocess
import sys
from datetime import UTC, datetime

import pytest

from feed_assets.entities.copies.globs import find_glob_fault, translate_glob
from feed_assets.entities.feed import Feed, are_validities_apart, find_sources, find_targets, flow_sequence
from feed_assets.entities.replication import (
    PROPERTIES,
    WITHOUT_EFFECT,
    Replication,
    complete_replication,
    unreadable_properties,
)


def replicated(source: dict[str, str], target: dict[str, str], **own: str) -> Feed:
    clusters = {
        "east": {"type": "source", "validity": source, **own},
        "west": {"type": "target", "validity": target},
        "south": {"validity": target},
    }
    locations = {"data": "/clicks/${YEAR}/${MONTH}"}
    return Feed.model_validate(
        {"name": "clicks", "frequency": "months(1)", "locations": locations, "clusters": clusters}
    )


@pytest.mark.parametrize("delay", ["months(30000)", "months(90000)"])
def test_a_delay_beyond_the_calendar_leaves_nothing_to_copy(delay: str) -> None:
    feed = replicated(
        {"start": "2015-01-01T00:00Z", "end": "2016-01-01T00:00Z"}, {"start": "2015-01-01T00:00Z"}, delay=delay
    )
    assert are_validities_apart(feed, "east", "west")
    assert flow_sequence(feed, "east", "west") is None


def test_a_flow_has_the_instances_of_the_target_from_the_later_start_to_the_earlier_end() -> None:
    feed = replicated({"start": "2015-03-01T00:00Z"}, {"start": "2015-01-01T00:00Z", "end": "2015-06-01T00:00Z"})
    assert (find_sources(feed), find_targets(feed)) == (("east",), ("west",))
    sequence = flow_sequence(feed, "east", "west")
    assert sequence is not None
    assert [sequence.at(n).month for n in range(sequence.size or 0)] == [3, 4, 5]
    assert sequence.end == datetime(2015, 6, 1, tzinfo=UTC)


def test_a_policy_is_written_alike_by_every_process() -> None:
    code = (
        "from feed_assets.entities.replication import Replication;"
        "print(Replication(preserve=['times', 'permissions']).model_dump_json(exclude_defaults=True))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True
        ).stdout
        for seed in range(4)
    }
    assert texts == {'{"preserve":["permissions","times"]}\n'}


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "9" * 5000])
def test_a_number_that_cannot_be_read_says_nothing(text: str) -> None:
    properties = dict.fromkeys(["parallel", "maxMaps", "mapBandwidth"], text)
    assert complete_replication(None, properties) == Replication()
    assert unreadable_properties(properties) == tuple(properties)


def test_what_is_written_wins_over_properties() -> None:
    policy = complete_replication(
        Replication(parallel=2, removed_files="keep"), {"parallel": "4", "removeDeletedFiles": "true"}
    )
    assert (policy.parallel, policy.removed_files) == (2, "keep")


def test_properties_either_say_something_or_have_no_effect() -> None:
    assert not PROPERTIES.keys() & WITHOUT_EFFECT.keys()
    assert set(PROPERTIES.values()) <= Replication.model_fields.keys()


@pytest.mark.parametrize(
    ("glob", "is_faulty"),
    [("*", False), ("a}", False), ("{a,{b,c}}", False), ("\\[", False), ("[]]", False), ("[]", True), ("[!]", True),
     ("{a", True), ("a/[b/c", True), ("[z-a]", True), ("a\\", True), ("a\\\\", False)],
)  # fmt: skip
def test_a_glob_that_nobody_can_have_meant_is_found(glob: str, is_faulty: bool) -> None:
    assert (find_glob_fault(glob) is not None) is is_faulty
    assert is_faulty or translate_glob(glob)
