"""What programs say, in JSON and after one another."""

import json

import pytest

from feed_assets.engines.run_metadata import ReportedMetadata, check_nothing, parse_reported
from feed_assets.entities.errors import MetadataRefusedError


def parsed(content: object) -> ReportedMetadata:
    return parse_reported(json.dumps(content), check_nothing)


def test_what_was_said_is_kept_as_json_and_read_again() -> None:
    reported = parsed(
        {"facts": {"rows": 12, "share": 0.5}, "metadata": {"feed/a": {"properties": {"b": 3}, "tags": ["c"]}}}
    )
    assert reported.render() == {
        "facts": {"rows": 12, "share": 0.5},
        "metadata": {"feed/a": {"properties": {"b": "3"}, "tags": ["c"]}},
    }
    assert ReportedMetadata.of(json.loads(json.dumps(reported.render()))) == reported
    assert not parsed({})


def test_what_is_said_later_counts() -> None:
    first = parsed({"facts": {"rows": 1, "old": 1}, "metadata": {"feed/a": {"properties": {"b": "1", "c": "1"}}}})
    later = parsed({"facts": {"rows": 2}, "metadata": {"feed/a": {"properties": {"b": "2"}}}})
    assert first.then(later).render() == {
        "facts": {"rows": 2, "old": 1},
        "metadata": {"feed/a": {"properties": {"b": "2", "c": "1"}, "tags": []}},
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rows=12", "the facts: they are no JSON"),
        ("[]", "the facts: this is not the form of facts"),
        ('{"fact": {}}', "the facts: this is not the form of facts"),
        ('{"facts": {"a b": 1}}', "fact 'a b': a name has"),
        ('{"facts": {"a": null}}', "None is no text, number or truth value"),
        ('{"facts": {"a": NaN}}', "nan is no text, number or truth value"),
        ('{"metadata": {"feed/a": {"tag": []}}}', "feed/a: this is not the form of facts"),
        ('{"metadata": {"feed/a": {"properties": {"tags": "x"}}}}', "the name is reserved for tags"),
    ],
)
def test_a_file_that_is_no_facts_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MetadataRefusedError, match=reason):
        parse_reported(text, check_nothing)
