"""All paths that others know. Of several that match a request, the first is meant."""

from feed_assets.server.aliases.airflow import AIRFLOW
from feed_assets.server.aliases.cdap import CDAP
from feed_assets.server.aliases.falcon import FALCON
from feed_assets.server.aliases.records import Alias

ALIASES: tuple[Alias, ...] = (*CDAP, *AIRFLOW, *FALCON)
