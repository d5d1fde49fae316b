"""A small project that is in order, and the mistakes that beginners make in it: what is changed, and what must be said.

Each mistake is one edit of one file. `place` is where the message must point to, `cause` and `remedy` are pieces of it.
"""

from dataclasses import dataclass
from pathlib import Path

ENTITIES = """\
kind: cluster
name: primary
storage: file://${DATA_ROOT}
spark: {master: "local[2]"}
---
kind: feed
name: flights
frequency: days(1)
timezone: Europe/Berlin
format: csv
schema: "carrier string, dep_delay double, origin string"
availability_flag: _SUCCESS
late_arrival: {cut_off: days(2)}
locations: {data: "/flights/${YEAR}-${MONTH}-${DAY}"}
clusters:
  primary:
    validity: {start: 2025-02-28T23:00Z, end: 2035-01-01T00:00Z}
    retention: {limit: days(90)}
---
kind: feed
name: delays
frequency: days(1)
timezone: Europe/Berlin
schema: "carrier string, delay double"
locations: {data: "/delays/${YEAR}-${MONTH}-${DAY}"}
clusters:
  primary: {validity: {start: 2025-02-28T23:00Z}}
---
kind: feed
name: origins
frequency: days(1)
timezone: Europe/Berlin
schema: "origin string, flights bigint"
locations: {data: "/origins/${YEAR}-${MONTH}-${DAY}"}
clusters:
  primary: {validity: {start: 2025-02-28T23:00Z}}
---
kind: process
name: daily-delays
frequency: days(1)
timezone: Europe/Berlin
clusters:
  primary: {validity: {start: 2025-02-28T23:00Z, end: 2034-12-31T23:00Z}}
inputs:
  flights: {feed: flights, start: "today(0,0)", end: "today(0,0)"}
outputs:
  delays: {feed: delays, instance: "today(0,0)"}
workflow: {engine: python, path: "jobs/delays.py:daily_delays"}
---
kind: process
name: daily-origins
frequency: days(1)
timezone: Europe/Berlin
clusters:
  primary: {validity: {start: 2025-02-28T23:00Z, end: 2034-12-31T23:00Z}}
inputs:
  flights: {feed: flights, start: "today(0,0)", end: "today(0,0)"}
outputs:
  origins: {feed: origins, instance: "today(0,0)"}
workflow: {engine: sql, path: jobs/origins.sql}
"""

PYTHON = """\
from pyspark.sql import functions as sf


def daily_delays(spark, flights):
    return flights.groupBy("carrier").agg(sf.avg("dep_delay").alias("delay"))
"""

SQL = """\
-- How many flights leave each airport.
SELECT
  origin,
  count(*) AS flights
FROM flights
GROUP BY origin
"""

YAML_FILE, PYTHON_FILE, SQL_FILE, SETTINGS_FILE = (
    "entities/all.yaml",
    "jobs/delays.py",
    "jobs/origins.sql",
    "feed_assets.yaml",
)
FILES = {
    YAML_FILE: ENTITIES,
    PYTHON_FILE: PYTHON,
    SQL_FILE: SQL,
    SETTINGS_FILE: 'variables: {DATA_ROOT: "${PROJECT_ROOT}/data"}\n',
}


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An edit of the project; `line` is that of the message, or of none (the file as a whole)."""

    name: str
    old: str
    new: str
    line: int | None
    cause: str
    remedy: str
    file: str = YAML_FILE
    is_live: bool = False

    def __str__(self) -> str:
        return self.name


def write_project(folder: Path, mistake: Mistake | None = None) -> None:
    """Write the project, with a mistake."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if mistake is not None and mistake.file == name:
            assert text.count(mistake.old) >= 1, f"{mistake.old!r} is not in {name}"
            text = text.replace(mistake.old, mistake.new, 1)
        file.write_text(text, "utf-8")


MISTAKES = (
    Mistake(
        name="key",
        old="retention: {limit",
        new="retetnion: {limit",
        line=18,
        cause="'retetnion' is not a key",
        remedy="Did you mean 'retention'?",
    ),
    Mistake(
        name="kind",
        old="kind: feed",
        new="kind: fead",
        line=6,
        cause="'fead' is not a kind",
        remedy="Did you mean 'feed'?",
    ),
    Mistake(
        name="feed name",
        old="{feed: flights",
        new="{feed: fligths",
        line=45,
        cause="there is no feed 'fligths'",
        remedy="Did you mean 'flights'?",
    ),
    Mistake(
        name="cluster name",
        old="  primary:\n    validity",
        new="  primry:\n    validity",
        line=16,
        cause="there is no cluster 'primry'",
        remedy="Did you mean 'primary'?",
    ),
    Mistake(
        name="zone",
        old="timezone: Europe/Berlin",
        new="timezone: Europe/Berln",
        line=9,
        cause="'Europe/Berln'",
        remedy="Europe/Berlin",
    ),
    Mistake(
        name="zone abbreviation",
        old="timezone: Europe/Berlin",
        new="timezone: CEST",
        line=9,
        cause="'CEST' is not in the time zone database",
        remedy="Europe/Berlin",
    ),
    Mistake(
        name="UTC day read by a Berlin day",
        old="timezone: Europe/Berlin\nformat: csv",
        new="format: csv",
        line=44,
        cause="its own last 23 hours, from 2025-08-31T23:00Z on, fall out",
        remedy="timezone: Europe/Berlin at the feed",
    ),
    Mistake(
        name="frequency",
        old="frequency: days(1)\ntimezone: Europe/Berlin\nformat",
        new="frequency: daily\ntimezone: Europe/Berlin\nformat",
        line=8,
        cause="'daily' is not a frequency",
        remedy="Did you mean days(1)?",
    ),
    Mistake(
        name="frequency in the singular",
        old="frequency: days(1)\ntimezone: Europe/Berlin\nformat",
        new="frequency: day(1)\ntimezone: Europe/Berlin\nformat",
        line=8,
        cause="'day(1)'",
        remedy="Did you mean days(1)?",
    ),
    Mistake(
        name="path without day",
        old="/flights/${YEAR}-${MONTH}-${DAY}",
        new="/flights/${YEAR}-${MONTH}",
        line=14,
        cause="several instances of days(1) have the same path",
        remedy="Add the missing variable",
    ),
    Mistake(
        name="path without time",
        old="/flights/${YEAR}-${MONTH}-${DAY}",
        new="/flights",
        line=14,
        cause="no time",
        remedy="${YEAR}",
    ),
    Mistake(
        name="unknown path variable",
        old='${DAY}"}\nclusters:\n  primary:\n',
        new='${DAYS}"}\nclusters:\n  primary:\n',
        line=14,
        cause="DAYS",
        remedy="${DAY}",
    ),
    Mistake(
        name="overlapping locations",
        old='"/origins/',
        new='"/delays/',
        line=34,
        cause="its publications would remove data of both",
        remedy="Give each its own path",
    ),
    Mistake(
        name="end before start",
        old="end: 2035-01-01T00:00Z",
        new="end: 2015-01-01T00:00Z",
        line=17,
        cause="before its start",
        remedy="Move the end after the start",
    ),
    Mistake(
        name="date without zone",
        old="start: 2025-02-28T23:00Z, end: 2035",
        new="start: 2025-02-28T23:00, end: 2035",
        line=17,
        cause="'2025-02-28T23:00' is not a date and time",
        remedy="for example 2025-02-28T23:00Z",
    ),
    Mistake(
        name="day as a date",
        old="start: 2025-02-28T23:00Z, end: 2035",
        new="start: 2025-02-28, end: 2035",
        line=17,
        cause="'2025-02-28' is not a date and time",
        remedy="for example 2025-02-28T00:00Z",
    ),
    Mistake(
        name="missing variable",
        old="file://${DATA_ROOT}",
        new="file://${DATA_ROOTS}",
        line=3,
        cause="tried in this order: FEED_ASSETS_VARIABLES__DATA_ROOTS in the environment, variables in",
        remedy="Did you mean ${DATA_ROOT}?",
    ),
    Mistake(
        name="missing environment variable",
        old='spark: {master: "local[2]"}',
        new='spark: {master: "${env:SPARK_MASTER_OF_NOBODY}"}',
        line=4,
        cause="the environment has no SPARK_MASTER_OF_NOBODY",
        remedy="Export SPARK_MASTER_OF_NOBODY",
    ),
    Mistake(
        name="tab",
        old="    validity: {start: 2025",
        new="\tvalidity: {start: 2025",
        line=17,
        cause="indented with a tab",
        remedy="Indent it with spaces",
    ),
    Mistake(
        name="missing colon",
        old="name: flights\n",
        new="name flights\n",
        line=7,
        cause="neither `key: value` nor an item of a list",
        remedy="Write a colon",
    ),
    Mistake(
        name="unquoted expression",
        old='start: "today(0,0)", end',
        new="start: today(0,0), end",
        line=45,
        cause="is not a key of inputs.flights",
        remedy="an expression with commas needs quotes",
    ),
    Mistake(
        name="unclosed quote",
        old='"/flights/${YEAR}-${MONTH}-${DAY}"}',
        new='"/flights/${YEAR}-${MONTH}-${DAY}}',
        line=14,
        cause="the quotation mark here is never closed",
        remedy="Close it",
    ),
    Mistake(
        name="duplicate name",
        old="name: origins",
        new="name: delays",
        line=30,
        cause="there is another feed 'delays'",
        remedy="Rename",
    ),
    Mistake(
        name="duplicate key",
        old="format: csv\n",
        new="format: csv\nformat: json\n",
        line=11,
        cause="the key 'format' is written twice, first in line 10",
        remedy="Keep one of them",
    ),
    Mistake(
        name="cyclic processes",
        old='{feed: flights, start: "today(0,0)", end: "today(0,0)"}\noutputs:\n  delays',
        new='{feed: delays, start: "today(0,0)", end: "today(0,0)"}\noutputs:\n  delays',
        line=45,
        cause="an instance waits for itself",
        remedy="End a window of this cycle earlier",
    ),
    Mistake(
        name="flag with a slash",
        old="availability_flag: _SUCCESS",
        new="availability_flag: done/_SUCCESS",
        line=12,
        cause="not the name of a file",
        remedy="without slashes",
    ),
    Mistake(
        name="retention shorter than late arrival",
        old="days(90)",
        new="days(1)",
        line=18,
        cause="shorter than late arrival",
        remedy="days(2)",
    ),
    Mistake(
        name="engine",
        old="engine: sql",
        new="engine: sparksql",
        line=60,
        cause="'sparksql' is not one of python, sql",
        remedy="Write python, sql",
    ),
    Mistake(
        name="format",
        old="format: csv",
        new="format: cvs",
        line=10,
        cause="'cvs' is not one of csv",
        remedy="Write csv, json",
    ),
    Mistake(
        name="missing key",
        old='outputs:\n  delays: {feed: delays, instance: "today(0,0)"}',
        new="outputs:\n  delays: {feed: delays}",
        line=47,
        cause="'instance' is missing",
        remedy='instance: "now(0,0)"',
    ),
    Mistake(
        name="expression",
        old='instance: "today(0,0)"',
        new='instance: "tody(0,0)"',
        line=47,
        cause="tody is not a time function",
        remedy="Did you mean today?",
    ),
    Mistake(
        name="window that runs backwards",
        old='end: "today(0,0)"',
        new='end: "yesterday(0,0)"',
        line=45,
        cause="before the start",
        remedy="Swap",
    ),
    Mistake(
        name="type of a column",
        old="dep_delay double",
        new="dep_delay flaot",
        line=11,
        cause="a type that Spark does not know: 'flaot'",
        remedy="Did you mean 'float'?",
    ),
    Mistake(
        name="column without a type",
        old="dep_delay double",
        new="dep_delay",
        line=11,
        cause="'dep_delay'",
        remedy="name type",
    ),
    Mistake(
        name="missing file",
        old="path: jobs/origins.sql",
        new="path: jobs/orgins.sql",
        line=60,
        cause="the file 'jobs/orgins.sql' does not exist",
        remedy="Did you mean 'jobs/origins.sql'?",
    ),
    Mistake(
        name="missing module",
        old="jobs/delays.py:daily_delays",
        new="jobs.delay:daily_delays",
        line=48,
        cause="there is no module 'delay' in jobs",
        remedy="Did you mean 'jobs.delays'?",
    ),
    Mistake(
        name="missing function",
        old="jobs/delays.py:daily_delays",
        new="jobs/delays.py:daily_delay",
        line=48,
        cause="has no function 'daily_delay'",
        remedy="Did you mean 'daily_delays'?",
    ),
    Mistake(
        name="misspelt parameter",
        file=PYTHON_FILE,
        old="(spark, flights)",
        new="(spark, flight)",
        line=4,
        cause="no argument matches the parameter 'flight'",
        remedy="Did you mean 'flights' instead of 'flight'?",
    ),
    Mistake(
        name="missing parameter",
        file=PYTHON_FILE,
        old="(spark, flights)",
        new="(spark)",
        line=4,
        cause="the input 'flights' has no parameter",
        remedy="Arguments are passed by name: spark, context, flights",
    ),
    Mistake(
        name="superfluous parameter",
        file=PYTHON_FILE,
        old="(spark, flights)",
        new="(spark, flights, weather)",
        line=4,
        cause="no argument matches the parameter 'weather'",
        remedy="Arguments are passed by name: spark, context, flights",
    ),
    Mistake(
        name="Python syntax",
        file=PYTHON_FILE,
        old="flights):\n",
        new="flights)\n",
        line=4,
        cause="it is not Python: expected ':'",
        remedy="Correct the file",
    ),
    Mistake(
        name="SQL keyword",
        file=SQL_FILE,
        old="FROM",
        new="FORM",
        line=5,
        cause="cannot be read as SQL at 'FORM'",
        remedy="Did you mean FROM?",
    ),
    Mistake(
        name="SQL bracket",
        file=SQL_FILE,
        old="count(*)",
        new="count(*",
        line=4,
        cause="a ')' is missing before it",
        remedy="Write the ')'",
    ),
    Mistake(
        name="table in SQL",
        file=SQL_FILE,
        old="FROM flights",
        new="FROM flihgts",
        line=5,
        cause="there is no view 'flihgts'; the inputs are flights",
        remedy="Did you mean 'flights'?",
    ),
    Mistake(
        name="column in SQL",
        file=SQL_FILE,
        old="  origin,",
        new="  orgin,",
        line=3,
        cause="there is no column `orgin`",
        remedy="Did you mean `origin`?",
        is_live=True,
    ),
    Mistake(
        name="aggregate in SQL",
        file=SQL_FILE,
        old="GROUP BY origin",
        new="GROUP BY carrier",
        line=2,
        cause='expression "origin" is based on columns which are not participating in the GROUP BY clause',
        remedy="Correct the statement",
        is_live=True,
    ),
    Mistake(
        name="output column",
        file=SQL_FILE,
        old="AS flights",
        new="AS number",
        line=2,
        cause="missing: flights; not declared: number",
        remedy="Return exactly origin, flights",
        is_live=True,
    ),
    Mistake(
        name="type of an output column",
        file=SQL_FILE,
        old="count(*) AS flights",
        new="origin AS flights",
        line=2,
        cause='column `flights` is "STRING", but the schema says "BIGINT"',
        remedy="Cast it in the workflow",
        is_live=True,
    ),
    Mistake(
        name="missing package",
        file=PYTHON_FILE,
        old="from pyspark.sql",
        new="from pysparc.sql",
        line=1,
        cause="No module named 'pysparc'",
        remedy="Correct the module",
        is_live=True,
    ),
    Mistake(
        name="SQL keyword, as Spark says it",
        file=SQL_FILE,
        old="FROM",
        new="FORM",
        line=5,
        cause="Syntax error",
        remedy="Correct the statement",
        is_live=True,
    ),
    Mistake(
        name="table in SQL, as Spark says it",
        file=SQL_FILE,
        old="FROM flights",
        new="FROM flihgts",
        line=5,
        cause="there is no view 'flihgts'",
        remedy="'flights'",
        is_live=True,
    ),
)
