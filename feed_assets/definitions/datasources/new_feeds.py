"""New feeds of tables: their documents, with the columns that the database has."""

from datetime import datetime
from pathlib import Path
from typing import Any

from feed_assets.context.errors import NewEntityError
from feed_assets.definitions.datasources.asking import open_datasource
from feed_assets.definitions.datasources.requests import FeedRequest
from feed_assets.definitions.templates import Template, make_template
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.timing.dates import render_datetime

_FORMAT = "${YEAR}-${MONTH}-${DAY}"


def make_feed(
    request: FeedRequest, declared: Bundle, as_of: datetime, root: Path, *, is_forced: bool = False
) -> Template:
    """Make the definition of a feed that is imported from a table. Columns that Spark cannot read are left out.

    Raises:
        NewEntityError: the cluster is not known; or the feed is already declared, and `is_forced` is False.
        EntityNotFoundError: there is no such datasource.
        ServiceError: the database cannot be asked.
        DefinitionsError: the definition has errors; carries the issues.
    """
    datasource = declared.get_datasource(request.datasource)
    with open_datasource(datasource, root) as connection:
        table = request.table if "." in request.table else f"{connection.schema()}.{request.table}"
        columns = connection.columns(table)
    read = [each for each in columns if each.ddl is not None]
    source: dict[str, Any] = {"name": datasource.name, "table": table}
    if len(read) < len(columns):
        source["fields"] = {"includes": [each.name for each in read]}
    midnight = as_of.replace(hour=0, minute=0, second=0, microsecond=0)
    start = render_datetime((request.start or midnight).replace(second=0))
    frequency = request.frequency.render() if request.frequency else "days(1)"
    document = {
        "name": request.name,
        "frequency": frequency,
        "schema": ", ".join(f"{_quoted(each.name)} {each.read_as}" for each in read),
        "locations": {"data": request.location or _location(request.name, frequency)},
        "clusters": {
            _cluster(request, declared): {
                "type": "source",
                "validity": {"start": start},
                "import": {"source": source},
            }
        },
    }
    notes = tuple(f"{each.name} {each.type} is left out: Spark cannot read it" for each in columns if each.ddl is None)
    return make_template(Kind.FEED, document, declared, render_yaml, what="new feed", notes=notes, is_forced=is_forced)


def _cluster(request: FeedRequest, declared: Bundle) -> str:
    names = [each.name for each in declared.clusters]
    if request.cluster is None and len(names) != 1:
        reason = f"its data can be on {', '.join(names)}" if names else "no cluster is declared"
        raise NewEntityError(what="new feed", reason=reason, next_step="Give --cluster.")
    return request.cluster or names[0]


def _location(name: str, frequency: str) -> str:
    """Return a place for each instance: down to the day, or with hour and minute.

    >>> _location("orders", "days(1)"), _location("orders", "hours(2)")
    ('/orders/${YEAR}-${MONTH}-${DAY}', '/orders/${YEAR}-${MONTH}-${DAY}-${HOUR}')
    """
    finer = {"hours": "-${HOUR}", "minutes": "-${HOUR}-${MINUTE}"}
    return f"/{name}/{_FORMAT}{finer.get(frequency.partition('(')[0], '')}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name.replace('`', '``')}`"
