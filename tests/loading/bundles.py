"""The bundle of a location, with values that a test gives."""

import os
from collections.abc import Mapping
from pathlib import Path

from feed_assets.loading.bundles import LoadedBundle, load_files
from feed_assets.loading.entity_files import Values, read_entity_files


def load_bundle(
    location: str | Path, *, variables: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> LoadedBundle:
    """The entities of a location; without an environment, that of the process counts."""
    values = Values(variables=variables, environ=os.environ if environ is None else environ)
    return load_files(read_entity_files(location), values)
