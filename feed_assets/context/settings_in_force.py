"""The settings in force, each with its value and its source."""

import os
import re
from dataclasses import dataclass

from feed_assets.masking import HIDDEN, is_name_of_credential, mask
from feed_assets.receivers import channel_of, describe_receiver
from feed_assets.settings import PROJECT_ROOT, Settings, iter_values

_RECEIVER = re.compile(r"notify\.[^.]+\.url")  # notify.ops.url: what follows the host may be a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce:
    """A setting; its value is without secrets, and None if it has none."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsInForce:
    """The folder of a project, the sources of its settings, the strongest first, and its settings."""

    project: str
    tried: tuple[str, ...]
    settings: tuple[SettingInForce, ...]


def find_settings_in_force(settings: Settings) -> SettingsInForce:
    """Return every setting with its source, also those that have their defaults, and `DAGSTER_HOME`."""
    found = [
        SettingInForce(name=name, value=_shown(name, value), source=settings.origin_of(name))
        for name, value in iter_values(settings.model_dump(mode="json"))
    ]
    home = os.environ.get("DAGSTER_HOME") or None
    derived = "the folder of the settings file" if settings.file else "the first folder that was tried"
    return SettingsInForce(
        project=str(settings.root),
        tried=settings.tried,
        settings=(
            SettingInForce(name=PROJECT_ROOT, value=str(settings.root), source=derived),
            *found,
            SettingInForce(name="DAGSTER_HOME", value=home, source="the environment" if home else "not set"),
        ),
    )


def _shown(name: str, value: object) -> str | None:
    if value is None or value == []:
        return None
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if _RECEIVER.fullmatch(name):
        return describe_receiver(channel_of(str(value)), str(value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return HIDDEN if is_name_of_credential(name.rpartition(".")[2]) else mask(text)
