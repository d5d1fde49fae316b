"""The grammar of Falcon's feed documents, and where each value goes."""

from feed_assets.loading.falcon.grammar import Element, Form, many, maybe, one, optional, required, text, wrapper
from feed_assets.loading.falcon.shared_elements import ACL, NOTIFICATION, PROPERTIES, TAGS, TIMEZONE, VALIDITY, VERSION

_FEED_SLA = Element(name="sla", to="sla", attributes=(required("slaLow", to="low"), required("slaHigh", to="high")))
_LOCATION = (required("type", choices=("data", "stats", "meta", "tmp")), required("path"))
_LOCATIONS = wrapper(
    "locations",
    many(
        Element(name="location", form=Form.KEYED, to="locations", key="type", value="path", attributes=_LOCATION),
        least=0,
    ),
)
_TABLE = Element(name="table", form=Form.FIELD, to="table", value="uri", attributes=(required("uri"),))
_LIFECYCLE = Element(
    name="lifecycle",
    to="lifecycle",
    any_order=True,
    content=(
        maybe(
            Element(
                name="retention-stage",
                to="retention_stage",
                any_order=True,
                content=(
                    maybe(text("policy")),
                    maybe(text("frequency")),
                    maybe(text("queue", blank_is_none=True)),
                    maybe(text("priority", blank_is_none=True)),
                    maybe(PROPERTIES),
                ),
            )
        ),
        maybe(
            Element(
                name="archival-stage",
                to="archival_stage",
                any_order=True,
                content=(
                    maybe(text("policy", choices=("AgeBasedArchival",))),
                    maybe(text("deleteFromSource", blank_is_none=True)),
                    maybe(text("queue", blank_is_none=True)),
                    one(Element(name="location", to="location", attributes=_LOCATION)),
                    maybe(PROPERTIES),
                ),
            )
        ),
    ),
)
_FIELDS = Element(
    name="fields",
    to="fields",
    content=(
        one(
            wrapper("includes", many(Element(name="field", form=Form.LIST, to="includes"))),
            wrapper("excludes", many(Element(name="field", form=Form.LIST, to="excludes"))),
        ),
    ),
)
_ARGUMENTS = wrapper(
    "arguments",
    many(
        Element(
            name="argument",
            form=Form.KEYED,
            to="arguments",
            key="name",
            value="value",
            attributes=(required("name"), required("value")),
        ),
        least=0,
    ),
)
_TABLE_OF_DATASOURCE = (required("name"), required("tableName", to="table"), VERSION)
_IMPORT = Element(
    name="import",
    to="import",
    content=(
        one(
            Element(
                name="source",
                to="source",
                attributes=_TABLE_OF_DATASOURCE,
                content=(
                    maybe(
                        Element(
                            name="extract",
                            to="extract",
                            attributes=(required("type", choices=("full", "incremental")),),
                            content=(
                                maybe(text("deltacolumn", to="delta_column", blank_is_none=True)),
                                one(text("mergepolicy", to="merge_policy", choices=("snapshot", "append"))),
                            ),
                        )
                    ),
                    maybe(_FIELDS),
                ),
            )
        ),
        maybe(_ARGUMENTS),
    ),
)
_EXPORT = Element(
    name="export",
    to="export",
    content=(
        one(
            Element(
                name="target",
                to="target",
                attributes=_TABLE_OF_DATASOURCE,
                content=(
                    one(
                        Element(
                            name="load",
                            to="load",
                            attributes=(required("type", choices=("updateonly", "allowinsert")),),
                        )
                    ),
                    maybe(_FIELDS),
                ),
            )
        ),
        maybe(_ARGUMENTS),
    ),
)
FEED = Element(
    name="feed",
    attributes=(required("name"), optional("description"), VERSION),
    content=(
        maybe(TAGS),
        maybe(
            wrapper(
                "partitions",
                many(
                    Element(
                        name="partition", form=Form.LIST, to="partitions", key="name", attributes=(required("name"),)
                    ),
                    least=0,
                ),
            )
        ),
        maybe(text("groups")),
        maybe(text("availabilityFlag", to="availability_flag", blank_is_none=True)),
        one(text("frequency")),
        maybe(_FEED_SLA),
        maybe(TIMEZONE),
        maybe(Element(name="late-arrival", to="late_arrival", attributes=(required("cut-off", to="cut_off"),))),
        one(
            wrapper(
                "clusters",
                many(
                    Element(
                        name="cluster",
                        form=Form.KEYED,
                        to="clusters",
                        key="name",
                        attributes=(
                            required("name"),
                            optional("type", choices=("source", "target")),
                            optional("partition", blank_is_none=True),
                            optional("delay"),
                            VERSION,
                        ),
                        content=(
                            one(VALIDITY),
                            one(
                                Element(
                                    name="retention",
                                    to="retention",
                                    attributes=(
                                        optional("type", choices=("instance",), default="instance"),
                                        required("limit"),
                                        required("action", choices=("delete", "archive")),
                                    ),
                                )
                            ),
                            maybe(_FEED_SLA),
                            maybe(_IMPORT),
                            maybe(_EXPORT),
                            maybe(_LOCATIONS, _TABLE),
                            maybe(_LIFECYCLE),
                        ),
                    )
                ),
            )
        ),
        one(_LOCATIONS, _TABLE),
        maybe(NOTIFICATION),
        one(ACL),
        one(Element(name="schema", to="schema_source", attributes=(required("location"), required("provider")))),
        maybe(PROPERTIES),
        maybe(_LIFECYCLE),
    ),
)
