"""The grammar of Falcon's cluster and datasource documents, and where each value goes."""

from feed_assets.loading.falcon.grammar import Element, Form, many, maybe, one, optional, required, text, wrapper
from feed_assets.loading.falcon.shared_elements import ACL, PROPERTIES, TAGS, VERSION

CLUSTER = Element(
    name="cluster",
    attributes=(required("name"), optional("description"), required("colo", blank_is_none=True), VERSION),
    content=(
        maybe(TAGS),
        one(
            wrapper(
                "interfaces",
                many(
                    Element(
                        name="interface",
                        form=Form.KEYED,
                        to="interfaces",
                        key="type",
                        attributes=(
                            required(
                                "type",
                                choices=("readonly", "write", "execute", "workflow", "messaging", "registry", "spark"),
                            ),
                            required("endpoint"),
                            required("version"),
                        ),
                    ),
                    least=3,
                ),
            )
        ),
        one(
            wrapper(
                "locations",
                many(
                    Element(
                        name="location",
                        form=Form.KEYED,
                        to="locations",
                        key="name",
                        value="path",
                        attributes=(required("name", choices=("staging", "working", "temp")), required("path")),
                    )
                ),
            )
        ),
        maybe(ACL),
        maybe(PROPERTIES),
    ),
)

_DRIVER = Element(
    name="driver",
    to="driver",
    content=(one(text("clazz", to="class")), many(Element(name="jar", form=Form.LIST, to="jars"))),
)
_CREDENTIAL = Element(
    name="credential",
    to="credential",
    attributes=(required("type", choices=("password-file", "password-text", "password-alias")),),
    content=(
        one(text("userName", to="user")),
        one(
            text("passwordFile", to="password_file"),
            text("passwordText", to="password"),
            Element(
                name="passwordAlias",
                to="password_alias",
                content=(one(text("alias")), one(text("providerPath", to="provider"))),
            ),
        ),
    ),
)
DATASOURCE = Element(
    name="datasource",
    attributes=(
        required("name"),
        required("colo", blank_is_none=True),
        optional("description"),
        VERSION,
        required("type", choices=("mysql", "oracle", "hsql", "postgres", "db2", "netezza", "teradata", "generic")),
    ),
    content=(
        maybe(TAGS),
        one(
            wrapper(
                "interfaces",
                many(
                    Element(
                        name="interface",
                        form=Form.KEYED,
                        to="interfaces",
                        key="type",
                        attributes=(required("type", choices=("readonly", "write")), required("endpoint")),
                        content=(maybe(_DRIVER), maybe(_CREDENTIAL), maybe(PROPERTIES)),
                    )
                ),
                maybe(_CREDENTIAL),
            )
        ),
        one(_DRIVER),
        maybe(PROPERTIES),
        maybe(ACL),
    ),
)
