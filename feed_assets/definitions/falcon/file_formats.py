"""The formats of imported entities; the command line needs them without the import."""

from enum import StrEnum


class FileFormat(StrEnum):
    """The formats of written files."""

    YAML = "yaml"
    XML = "xml"
