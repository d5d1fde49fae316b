"""The rules about feeds in tables; see `cases`."""

from typing import Any

from tests.entities.samples import REMOVED
from tests.validation.cases import BACKUP, DAILY, ONLY_PRIMARY, PRIMARY, Case, another

DAILY_TABLE = "catalog:web:summary#ds=${YEAR}-${MONTH}-${DAY}"
CATALOGS = {
    "cluster primary/catalog": "thrift://primary:9083",
    "cluster backup/catalog": "thrift://backup:9083",
}


def tables(**more: Any) -> dict[str, Any]:
    """The feed `clicks` as a table, with the changes `cluster_primary`… under their own names."""
    return {
        **CATALOGS,
        "feed clicks/locations": REMOVED,
        "feed clicks/partitions": REMOVED,
        f"{BACKUP}/type": REMOVED,
        "feed clicks/table": "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR};region=eu",
        **more,
    }


TABLE_CASES = (
    Case(
        code="table-address",
        name="form",
        good=tables(),
        bad=tables(**{"feed clicks/table": "catalog:web.clicks#ds=${YEAR}"}),
        text="feed 'clicks': table: table 'catalog:web.clicks#ds=${YEAR}': it does not have the form "
        "catalog:database:table#partition. Write catalog:database:table#key=value, for example "
        "catalog:sales:clicks#ds=${YEAR}-${MONTH}-${DAY}.",
    ),
    Case(
        code="table-address",
        name="variable",
        good=tables(
            **{
                "cluster primary/properties": {"region": "eu"},
                "cluster backup/properties": {"region": "us"},
                "feed clicks/table": "catalog:web:clicks#day=${YEAR}${MONTH}${DAY}${HOUR};region=${cluster.region}",
            }
        ),
        bad=tables(**{"feed clicks/table": "catalog:web:clicks#day=${YEAR}${MONTH}${DAY}${HOUR};x=${cluster.region}"}),
        text="feed 'clicks': table: template 'day=${YEAR}${MONTH}${DAY}${HOUR}/x=${cluster.region}': the cluster has "
        "no property 'region'. Known are colo, name.",
    ),
    Case(
        code="table-catalog",
        good=tables(),
        bad=tables(**{"cluster backup/catalog": None}),
        text="feed 'clicks': the feed is a table on backup, but the cluster has no catalog. "
        "Write catalog: thrift://host:9083 (or the interface registry) at the cluster.",
    ),
    Case(
        code="feed-watch",
        name="table",
        bad={
            **CATALOGS,
            "feed landed": {
                "name": "landed",
                "instances": "as-they-come",
                "watch": "minutes(1)",
                "clusters": ONLY_PRIMARY,
                "table": "catalog:web:landed#at=${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}${SECOND}",
            },
        },
        text="feed 'landed': a table cannot be watched, such as that on primary: each look would list all its "
        "partitions. Remove watch, and give notice of each partition.",
    ),
    Case(
        code="table-sources",
        good=tables(),
        bad=tables(**{f"{BACKUP}/type": "source"}),
        text="feed 'clicks': multiple sources are not supported for feeds in tables: primary, backup. Keep one source.",
    ),
    Case(
        code="table-partitions",
        good=tables(),
        bad=tables(**{"feed clicks/partitions": ["country"]}),
        text="feed 'clicks': partitions are not supported for feeds in tables. Remove partitions.",
    ),
    Case(
        code="storage-uniform",
        good=tables(**{f"{BACKUP}/table": "catalog:copies:clicks#at=${YEAR}${MONTH}${DAY}${HOUR}"}),
        bad=tables(**{f"{BACKUP}/locations": {"data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}}),
        text="feed 'clicks': its storage is not uniform: a table on primary, locations on backup. "
        "Use tables everywhere, or locations everywhere.",
    ),
    Case(
        code="path-without-time",
        name="table",
        good=tables(),
        bad=tables(**{"feed clicks/table": "catalog:web:clicks#region=eu"}),
        text="feed 'clicks': table 'catalog:web:clicks#region=eu' has no time variable: all instances have the same "
        "partition. Add ${YEAR} and as many of ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE} as the frequency needs.",
    ),
    Case(
        code="path-granularity",
        name="table",
        good=tables(),
        bad=tables(**{"feed clicks/table": "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY}"}),
        text="feed 'clicks': table is too coarse: without ${HOUR} several instances of hours(1) have the same path. "
        "Add the missing variable to the partition of the table.",
    ),
    Case(
        code="path-variables",
        name="table",
        good=tables(**{f"{PRIMARY}/table": "catalog:web:clicks2#at=${YEAR}${MONTH}${DAY}${HOUR}"}),
        bad=tables(**{f"{PRIMARY}/table": "catalog:web:clicks2#at=${YEAR}${MONTH}${DAY}${HOUR}${MINUTE}"}),
        text="feed 'clicks': the table on primary has the variables ${YEAR}, ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE}, the "
        "feed's has ${YEAR}, ${MONTH}, ${DAY}, ${HOUR}. Use the same variables in both.",
    ),
    Case(
        code="path-shared",
        name="table",
        good=tables(),
        bad=tables(
            **{
                "feed views": another("feed clicks", name="views", groups=[])
                | {
                    "locations": None,
                    "partitions": [],
                    "table": "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR};region=eu",
                    "clusters": {"primary": {"validity": {"start": "2015-01-01T00:00Z"}}},
                }
            }
        ),
        text="feed 'views': on primary the data share a location with feed 'clicks' on primary: retention and "
        "publications would conflict. Give each its own path.",
    ),
    Case(
        code="feed-group",
        name="table",
        good=tables(),
        bad=tables(
            **{
                "feed views": another(
                    "feed clicks", name="views", locations={"data": "/v/${YEAR}/${MONTH}/${DAY}/${HOUR}/${MINUTE}"}
                )
            }
        ),
        text="feed 'views': group 'web' has feeds with the path variables ${YEAR}, ${MONTH}, ${DAY}, ${HOUR} (such as "
        "'clicks'), this one has ${YEAR}, ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE}. Use the same variables, or leave the "
        "group.",
    ),
    Case(
        code="input-partition",
        name="table",
        good=tables(),
        bad=tables(**{f"{DAILY}/inputs/clicks/partition": "nyc"}),
        text="process 'daily': inputs.clicks.partition is not supported: feed 'clicks' is a table. Remove it.",
    ),
    Case(
        code="optional-table",
        good=tables(),
        bad=tables(**{f"{DAILY}/inputs/clicks/optional": True}),
        text="process 'daily': the optional input 'clicks' is feed 'clicks', which is a table. Remove optional.",
    ),
)
