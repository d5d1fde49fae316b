"""Elements and attributes that several kinds of Falcon documents share."""

from feed_assets.loading.falcon.grammar import Element, Form, many, optional, required, text, wrapper

BOOLEANS = ("true", "false", "1", "0")
POLICIES = ("periodic", "exp-backoff", "final")
VERSION = optional("version", default="0")

TAGS = text("tags", blank_is_none=True)
TIMEZONE = text("timezone", blank_is_none=True)
ACL = Element(
    name="ACL",
    to="acl",
    attributes=(
        optional("owner", blank_is_none=True),
        optional("group", blank_is_none=True),
        optional("permission", default="*", blank_is_none=True),
    ),
)
_PROPERTY = Element(
    name="property",
    form=Form.KEYED,
    to="properties",
    key="name",
    value="value",
    attributes=(required("name"), required("value")),
)
PROPERTIES = wrapper("properties", many(_PROPERTY, least=0))
VALIDITY = Element(name="validity", to="validity", attributes=(required("start"), optional("end")))
NOTIFICATION = Element(
    name="notification",
    to="notification",
    attributes=(
        required("type", choices=("email",)),
        optional("level", choices=("attempt", "instance")),
        required("to"),
    ),
)
