"""The grammar of Falcon's feed documents, and where each value goes."""

from feed_assets.loading.falcon.grammar import (
    Element,
    Form,
    entries,
    many,
    maybe,
    one,
    optional,
    required,
    section,
    text,
    wrapper,
)
from feed_assets.loading.falcon.shared_elements import ACL, NOTIFICATION, PROPERTIES, TAGS, TIMEZONE, VALIDITY, VERSION

_FEED_SLA = section("sla", required("slaLow", to="low"), required("slaHigh", to="high"))
_LOCATION = (required("type", choices=("data", "stats", "meta", "tmp")), required("path"))
_LOCATIONS = entries("locations", "location", *_LOCATION, key="type", value="path", least=0)
_TABLE = Element(name="table", form=Form.FIELD, to="table", value="uri", attributes=(required("uri"),))
_RETENTION_STAGE = section(
    "retention-stage",
    maybe(text("policy")),
    maybe(text("frequency")),
    maybe(text("queue", blank_is_none=True)),
    maybe(text("priority", blank_is_none=True)),
    maybe(PROPERTIES),
    any_order=True,
)
_ARCHIVAL_STAGE = section(
    "archival-stage",
    maybe(text("policy", choices=("AgeBasedArchival",))),
    maybe(text("deleteFromSource", blank_is_none=True)),
    maybe(text("queue", blank_is_none=True)),
    one(section("location", *_LOCATION)),
    maybe(PROPERTIES),
    any_order=True,
)
_LIFECYCLE = section("lifecycle", maybe(_RETENTION_STAGE), maybe(_ARCHIVAL_STAGE), any_order=True)
_FIELDS = section(
    "fields",
    one(
        wrapper("includes", many(Element(name="field", form=Form.LIST, to="includes"))),
        wrapper("excludes", many(Element(name="field", form=Form.LIST, to="excludes"))),
    ),
)
_ARGUMENTS = entries("arguments", "argument", required("name"), required("value"), value="value", least=0)
_TABLE_OF_DATASOURCE = (required("name"), required("tableName", to="table"), VERSION)
_EXTRACT = section(
    "extract",
    required("type", choices=("full", "incremental")),
    maybe(text("deltacolumn", to="delta_column", blank_is_none=True)),
    one(text("mergepolicy", to="merge_policy", choices=("snapshot", "append"))),
)
_LOAD = section("load", required("type", choices=("updateonly", "allowinsert")))
_IMPORT = section(
    "import", one(section("source", *_TABLE_OF_DATASOURCE, maybe(_EXTRACT), maybe(_FIELDS))), maybe(_ARGUMENTS)
)
_EXPORT = section(
    "export", one(section("target", *_TABLE_OF_DATASOURCE, one(_LOAD), maybe(_FIELDS))), maybe(_ARGUMENTS)
)
_PARTITION = Element(name="partition", form=Form.LIST, to="partitions", key="name", attributes=(required("name"),))
_RETENTION = section(
    "retention",
    optional("type", choices=("instance",), default="instance"),
    required("limit"),
    required("action", choices=("delete", "archive")),
)
_CLUSTERS = entries(
    "clusters",
    "cluster",
    required("name"),
    optional("type", choices=("source", "target")),
    optional("partition", blank_is_none=True),
    optional("delay"),
    VERSION,
    one(VALIDITY),
    one(_RETENTION),
    maybe(_FEED_SLA),
    maybe(_IMPORT),
    maybe(_EXPORT),
    maybe(_LOCATIONS, _TABLE),
    maybe(_LIFECYCLE),
)
FEED = section(
    "feed",
    required("name"),
    optional("description"),
    VERSION,
    maybe(TAGS),
    maybe(wrapper("partitions", many(_PARTITION, least=0))),
    maybe(text("groups")),
    maybe(text("availabilityFlag", to="availability_flag", blank_is_none=True)),
    one(text("frequency")),
    maybe(_FEED_SLA),
    maybe(TIMEZONE),
    maybe(section("late-arrival", required("cut-off", to="cut_off"))),
    one(_CLUSTERS),
    one(_LOCATIONS, _TABLE),
    maybe(NOTIFICATION),
    one(ACL),
    one(section("schema", required("location"), required("provider"), to="schema_source")),
    maybe(PROPERTIES),
    maybe(_LIFECYCLE),
    to="",
)
