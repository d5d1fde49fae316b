"""The code location that Dagster loads: everything that is declared in the entities folder."""

from pathlib import Path

from feed_assets import build_definitions

defs = build_definitions(folder=Path(__file__).parent)
