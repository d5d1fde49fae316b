"""Project folders of tests: who works there, what is declared and set, and data that have come."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.databases import open_migrated


def enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let a person who is called ann work in a folder, with nothing set beside its files."""
    patch.chdir(folder)
    patch.setenv("FEED_ASSETS_AUTHOR", "ann")
    for name in ("FEED_ASSETS_STATE", "FEED_ASSETS_ENTITIES", "DAGSTER_HOME"):
        patch.delenv(name, raising=False)


def be(user: str, patch: pytest.MonkeyPatch) -> None:
    """Let the system call its user so; the environment says nothing of it."""
    entry = pwd.struct_passwd((user, *pwd.getpwuid(os.getuid())[1:]))
    patch.setattr(pwd, "getpwuid", lambda _: entry)


def declare(folder: Path, *documents: Mapping[str, object] | str, **settings: object) -> None:
    """Write definitions, mappings or YAML, and settings, and make the tables; the state is a file if none is set."""
    texts = [each if isinstance(each, str) else yaml.safe_dump(each) for each in documents]
    settings = {"state": f"sqlite:///{folder}/state.db", **settings}
    for name in ("entities", "data"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "entities/all.yaml").write_text("---\n".join(texts))
    (folder / "feed_assets.yaml").write_text(yaml.safe_dump(settings))
    open_migrated(str(settings["state"])).close()


def land(folder: Path, text: str = "1", *, is_flagged: bool = False) -> None:
    """Let the data of an instance come into its folder, flag last."""
    folder.mkdir(parents=True)
    (folder / "part.csv").write_text(text)
    if is_flagged:
        (folder / "_SUCCESS").touch()
