"""The grammar of Falcon's cluster and datasource documents, and where each value goes."""

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
from feed_assets.loading.falcon.shared_elements import ACL, PROPERTIES, TAGS, VERSION

CLUSTER = section(
    "cluster",
    required("name"),
    optional("description"),
    required("colo", blank_is_none=True),
    VERSION,
    maybe(TAGS),
    one(
        entries(
            "interfaces",
            "interface",
            required("type", choices=("readonly", "write", "execute", "workflow", "messaging", "registry", "spark")),
            required("endpoint"),
            required("version"),
            key="type",
            least=3,
        )
    ),
    one(
        entries(
            "locations",
            "location",
            required("name", choices=("staging", "working", "temp")),
            required("path"),
            value="path",
        )
    ),
    maybe(ACL),
    maybe(PROPERTIES),
    to="",
)

_DRIVER = section("driver", one(text("clazz", to="class")), many(Element(name="jar", form=Form.LIST, to="jars")))
_CREDENTIAL = section(
    "credential",
    required("type", choices=("password-file", "password-text", "password-alias")),
    one(text("userName", to="user")),
    one(
        text("passwordFile", to="password_file"),
        text("passwordText", to="password"),
        section("passwordAlias", one(text("alias")), one(text("providerPath", to="provider")), to="password_alias"),
    ),
)
_INTERFACES = entries(
    "interfaces",
    "interface",
    required("type", choices=("readonly", "write")),
    required("endpoint"),
    maybe(_DRIVER),
    maybe(_CREDENTIAL),
    maybe(PROPERTIES),
    key="type",
)
DATASOURCE = section(
    "datasource",
    required("name"),
    required("colo", blank_is_none=True),
    optional("description"),
    VERSION,
    required("type", choices=("mysql", "oracle", "hsql", "postgres", "db2", "netezza", "teradata", "generic")),
    maybe(TAGS),
    one(wrapper("interfaces", *_INTERFACES.content, maybe(_CREDENTIAL))),
    one(_DRIVER),
    maybe(PROPERTIES),
    maybe(ACL),
    to="",
)
