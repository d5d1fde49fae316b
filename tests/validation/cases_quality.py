"""Cases of the rules about quality: see `cases.py`."""

from typing import Any

from tests.entities.samples import BASE, REMOVED
from tests.validation.cases import ELSEWHERE, ONLY_PRIMARY, ORDERS, Case, another

RULES: dict[str, Any] = {"rules": {"warm": "temp > -40"}}
HELD: dict[str, Any] = {"feed summary/quality": {**RULES, "quarantine": "rejects"}}
REJECTS: dict[str, Any] = another(
    "feed summary", name="rejects", locations={"data": "/rejects/${YEAR}/${MONTH}/${DAY}"}
)
NOT_TAKEN = "feed 'summary': feed 'rejects' cannot take the bad rows: "
OWN_QUARANTINE = "Give each feed a quarantine of its own, which nothing else writes."
SUBMITTED = {"process daily/workflow": {"engine": "spark-submit", "path": "jobs/daily.py", "master": "local[1]"}}
AS_FILES = "Write files of another feed, and let a python or sql process write this feed from them."


def with_rejects(**changes: Any) -> dict[str, Any]:
    return {**HELD, "feed rejects": {name: each for name, each in (REJECTS | changes).items() if each is not REMOVED}}


QUALITY_CASES = (
    Case(
        code="quality-writers",
        good={"feed summary/quality": RULES},
        bad={"feed clicks/quality": RULES},
        text="feed 'clicks': quality has no meaning: no process writes the feed, and what arrives is taken as it is. "
        "Remove it, or let a process read this feed and write another one with quality.",
    ),
    Case(
        code="quality-writers",
        name="elsewhere",
        bad={
            "feed orders": ORDERS,
            "feed loaded": another(
                "feed summary",
                name="loaded",
                instances="as-they-come",
                frequency=None,
                locations={"data": "/loaded/${YEAR}${MONTH}${DAY}/${HOUR}${MINUTE}${SECOND}"},
                quality=RULES,
            ),
            "process load": {**ELSEWHERE, "outputs": {"loaded": {"feed": "loaded", "instance": "now(0,0)"}}},
        },
        text="feed 'loaded': process 'load' cannot be held to it: its work runs elsewhere, where no Spark of this "
        f"location sees the rows. {AS_FILES}",
    ),
    Case(
        code="quality-writers",
        name="optional",
        good={"feed summary/quality": RULES, **SUBMITTED},
        bad={"feed summary/quality": RULES, **SUBMITTED, "process daily/outputs/summary/optional": True},
        text="feed 'summary': process 'daily' cannot be held to it: its application may leave the output out, and what "
        f"is not there cannot be read. {AS_FILES}",
    ),
    Case(
        code="quality-writers",
        name="partitions",
        bad={"feed summary/quality": RULES, **SUBMITTED, "feed summary/partitions": ["country"]},
        text="feed 'summary': process 'daily' cannot be held to it: its application decides the directories of "
        f"partitions, and the rows are written anew without them. {AS_FILES}",
    ),
    Case(
        code="quality-quarantine",
        name="itself",
        good=with_rejects(),
        bad={"feed summary/quality": {**RULES, "quarantine": "summary"}},
        text="feed 'summary': the feed is its own quarantine. Declare a feed for the bad rows.",
    ),
    Case(
        code="unknown-reference",
        name="quarantine",
        bad={"feed summary/quality": {**RULES, "quarantine": "rejcts"}, "feed rejects": REJECTS},
        text="feed 'summary': there is no feed 'rejcts'. Did you mean 'rejects'?",
    ),
    Case(
        code="quality-quarantine",
        name="signal",
        bad={**HELD, "feed rejects": {"name": "rejects", "signal": True, "clusters": ONLY_PRIMARY}},
        text=f"{NOT_TAKEN}it has no data. Name a feed with locations or a table.",
    ),
    Case(
        code="quality-quarantine",
        name="of-a-quarantine",
        bad=with_rejects(quality=RULES),
        text=f"{NOT_TAKEN}it demands quality itself. Remove quality from the quarantine.",
    ),
    Case(
        code="quality-quarantine",
        name="text",
        bad=with_rejects(format="text"),
        text=f"{NOT_TAKEN}text has one column, and broken_rules is another. Write another format, such as parquet.",
    ),
    Case(
        code="quality-quarantine",
        name="shared",
        bad={
            **with_rejects(),
            "feed other": another(
                "feed summary",
                name="other",
                locations={"data": "/other/${YEAR}/${MONTH}/${DAY}"},
                quality={**RULES, "quarantine": "rejects"},
            ),
            "process more": another(
                "process daily", name="more", outputs={"other": {"feed": "other", "instance": "yesterday(0,0)"}}
            ),
        },
        text=f"{NOT_TAKEN}feed 'other' has the same quarantine. {OWN_QUARANTINE}",
    ),
    Case(
        code="quality-quarantine",
        name="written",
        bad={
            **with_rejects(),
            "process more": another(
                "process daily", name="more", outputs={"rejects": {"feed": "rejects", "instance": "yesterday(0,0)"}}
            ),
        },
        text=f"{NOT_TAKEN}process 'more' writes it, too. {OWN_QUARANTINE}",
    ),
    Case(
        code="quality-quarantine",
        name="times",
        bad=with_rejects(frequency="hours(1)", locations={"data": "/rejects/${YEAR}/${MONTH}/${DAY}/${HOUR}"}),
        text=f"{NOT_TAKEN}on primary its instances have other times than those of the feed. "
        "Give it the same frequency, timezone and validity.",
    ),
    Case(
        code="quality-quarantine",
        name="cluster",
        bad=with_rejects(clusters={"backup": BASE["feed summary"]["clusters"]["primary"]}),
        text=f"{NOT_TAKEN}it is not on cluster primary. Declare it there.",
    ),
    Case(
        code="quality-quarantine",
        name="columns",
        good={
            **with_rejects(schema="day date, clicks bigint, broken_rules string"),
            "feed summary/schema": "day date, clicks bigint",
        },
        bad={**with_rejects(schema="day date, hits bigint"), "feed summary/schema": "day date, clicks bigint"},
        text=f"{NOT_TAKEN}in its schema broken_rules is missing, clicks is missing, hits is not a column of the feed. "
        "Write the feed's columns and broken_rules string.",
    ),
    Case(
        code="quality-quarantine",
        name="own-column",
        bad={**with_rejects(), "feed summary/schema": "day date, Broken_Rules string"},
        text=f"{NOT_TAKEN}the feed has a column broken_rules, which is the quarantine's. Rename the column.",
    ),
    Case(
        code="quality-unique",
        good={"feed summary/schema": "day date, clicks bigint", "feed summary/quality": {"unique": ["DAY"]}},
        bad={"feed summary/schema": "day date, clicks bigint", "feed summary/quality": {"unique": ["day", "hour"]}},
        text="feed 'summary': unique names 'hour', which is no column of the feed's schema. Write some of clicks, day.",
    ),
)
