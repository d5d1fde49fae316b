"""What queries for instances can name; the command line needs it without the state and storage."""

from enum import StrEnum


class FilterField(StrEnum):
    """The fields by which instances are filtered, with Falcon's names."""

    STATUS = "STATUS"
    CLUSTER = "CLUSTER"
    SOURCE_CLUSTER = "SOURCECLUSTER"
    STARTED_AFTER = "STARTEDAFTER"


class OrderField(StrEnum):
    """The fields by which instances are ordered: Falcon's names, and the nominal time, the default."""

    STATUS = "status"
    CLUSTER = "cluster"
    START_TIME = "startTime"
    END_TIME = "endTime"
    NOMINAL_TIME = "nominalTime"


SUMMARY_FILTERS = frozenset({FilterField.STATUS, FilterField.CLUSTER})
