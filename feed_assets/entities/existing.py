"""What happens to foreign content in the place of an instance that is published for the first time."""

from enum import StrEnum

EXISTING = "feed_assets.existing"
"""The property of a process or a re-run that decides for its outputs."""


class Existing(StrEnum):
    """The decision about content that no record and no manifest knows, in the place of an instance.

    REFUSE: nothing is published. ADOPT: it becomes the instance as it is; a replica keeps the files that equal those of
    its source. REPLACE: it goes to the trash, and the instance takes its place.
    """

    REFUSE = "refuse"
    ADOPT = "adopt"
    REPLACE = "replace"
