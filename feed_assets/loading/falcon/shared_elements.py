"""Elements and attributes that several kinds of Falcon documents share."""

from feed_assets.loading.falcon.grammar import entries, optional, required, section, text

BOOLEANS = ("true", "false", "1", "0")
POLICIES = ("periodic", "exp-backoff", "final")
VERSION = optional("version", default="0")

TAGS = text("tags", blank_is_none=True)
TIMEZONE = text("timezone", blank_is_none=True)
ACL = section(
    "ACL",
    optional("owner", blank_is_none=True),
    optional("group", blank_is_none=True),
    optional("permission", default="*", blank_is_none=True),
    to="acl",
)
PROPERTIES = entries("properties", "property", required("name"), required("value"), value="value", least=0)
VALIDITY = section("validity", required("start"), optional("end"))
NOTIFICATION = section(
    "notification",
    required("type", choices=("email",)),
    optional("level", choices=("attempt", "instance")),
    required("to"),
)
