"""What queries for entities can name; the command line needs it without the state."""

from enum import StrEnum

PAGE = 10
SUMMARY_INSTANCES = 7
"""How many instances of each entity a summary has."""


class ListField(StrEnum):
    """The fields shown of an entity besides its kind and name."""

    STATUS = "STATUS"
    TAGS = "TAGS"
    PIPELINES = "PIPELINES"
    CLUSTERS = "CLUSTERS"


class FilterField(StrEnum):
    """The fields by which entities are filtered."""

    TYPE = "TYPE"
    NAME = "NAME"
    STATUS = "STATUS"
    PIPELINES = "PIPELINES"
    CLUSTER = "CLUSTER"


class Form(StrEnum):
    """The form in which a definition is shown: as written, or rendered anew."""

    WRITTEN = "written"
    YAML = "yaml"
    XML = "xml"
    JSON = "json"
