"""The rules about inboxes; see `cases`."""

from typing import Any

from tests.validation.cases import ONLY_PRIMARY, Case
from tests.validation.cases_tables import CATALOGS


def letters(name: str = "letters", inbox: Any = None, **more: Any) -> dict[str, Any]:
    """A feed with an inbox, under the name of its change."""
    return {
        f"feed {name}": {
            "name": name,
            "instances": "as-they-come",
            "inbox": {"directory": "/in/letters", **(inbox or {})},
            "clusters": ONLY_PRIMARY,
            "locations": {"data": f"/{name}/${{YEAR}}${{MONTH}}${{DAY}}/${{HOUR}}${{MINUTE}}${{SECOND}}"},
            **more,
        }
    }


INBOX_CASES = (
    Case(
        code="feed-instances",
        name="inbox",
        good=letters(),
        bad={"feed clicks/inbox": {"directory": "/in/clicks"}},
        text="feed 'clicks': inbox has no meaning: its instances are on schedule. Remove it; they are looked for.",
    ),
    Case(
        code="feed-inbox",
        name="watch",
        good=letters(),
        bad=letters(watch="minutes(1)"),
        text="feed 'letters': both watch and inbox are written. Remove watch: what is taken from the inbox is known.",
    ),
    Case(
        code="feed-inbox",
        name="pattern",
        good=letters(inbox={"pattern": "*.txt"}),
        bad=letters(inbox={"pattern": "a/*.txt"}),
        text="feed 'letters': pattern 'a/*.txt' has a slash, but only files in the directory itself are taken. "
        "Write a pattern of names, such as *.json.",
    ),
    Case(
        code="feed-inbox",
        name="table",
        bad={
            **CATALOGS,
            **letters(locations=None, table="catalog:web:l#at=${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}"),
        },
        text="feed 'letters': an inbox cannot fill a table, such as that on primary. "
        "Write locations, and let a process load the table.",
    ),
    Case(
        code="feed-inbox",
        name="written",
        bad={"feed summary/instances": "as-they-come", "feed summary/inbox": {"directory": "/in/summary"}},
        text="feed 'summary': inbox has no meaning: process 'daily' writes it. Remove it.",
    ),
    Case(
        code="feed-inbox",
        name="root",
        good=letters(inbox={"directory": "file:///in/letters"}),
        bad=letters(inbox={"directory": "/"}),
        text="feed 'letters': directory '/' is no directory below a storage. Write one such as /in/orders.",
    ),
    Case(
        code="feed-inbox",
        name="upwards",
        bad=letters(inbox={"directory": "/in/../letters"}),
        text="feed 'letters': directory '/in/../letters' has the segment '..'. Write a path without it.",
    ),
    Case(
        code="feed-inbox",
        name="variable",
        good=letters(inbox={"directory": "/in/${cluster.colo}"}),
        bad=letters(inbox={"directory": "/in/${cluster.nothing}"}),
        text="feed 'letters': inbox.directory: template '/in/${cluster.nothing}': the cluster has no property "
        "'nothing'. Known are colo, name.",
    ),
    Case(
        code="feed-inbox",
        name="times",
        bad=letters(inbox={"directory": "/in/${YEAR}"}),
        text="feed 'letters': directory '/in/${YEAR}' has a time in it, but an inbox is one directory. "
        "Write one such as /in/orders.",
    ),
    Case(
        code="feed-inbox",
        name="inside",
        bad=letters(inbox={"directory": "/letters/20150101/000000/in"}),
        text="feed 'letters': the inbox on primary overlaps other data: it is inside the data of feed 'letters' on "
        "primary. Use another directory.",
    ),
    Case(
        code="feed-inbox",
        name="shared",
        good={**letters(inbox={"pattern": "a*"}), **letters("others", {"pattern": "b*"})},
        bad={**letters(inbox={"pattern": "a*"}), **letters("others", {"pattern": "*"})},
        text="feed 'others': feed 'letters' takes the same files from /in/letters on primary. "
        "Write patterns that no file fits both.",
    ),
)
