"""All paths that others know. Of several that match a request, the one that says most in its own words is meant."""

import re

from feed_assets.server.aliases.airflow import AIRFLOW
from feed_assets.server.aliases.cdap import CDAP
from feed_assets.server.aliases.falcon import FALCON
from feed_assets.server.aliases.records import Alias

_PART = re.compile(r"\{[^}]*\}")  # {entity:path}

ALIASES: tuple[Alias, ...] = tuple(sorted((*CDAP, *AIRFLOW, *FALCON), key=lambda each: -len(_PART.sub("", each.path))))
