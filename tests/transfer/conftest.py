"""Pairs of sides to copy between: local directories, memory, and S3 of a real server on loopback."""

import itertools
import os
from pathlib import Path

import pytest

from tests.spark_session import spark
from tests.transfer.sides import Pair, Place, local_place, memory_place, s3_place

__all__ = ["spark"]

_numbers = itertools.count()


def _name() -> str:
    """The name of a store that no other test has, nor another process: files that wait for it lie below that name."""
    return f"replication-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Two local directories."""
    return Pair(local_place(tmp_path / "source"), local_place(tmp_path / "target"))


@pytest.fixture(
    params=[
        "local→local",
        "local→memory",
        "memory→local",
        "memory→memory",
        pytest.param("local→s3", marks=pytest.mark.server),
        pytest.param("s3→local", marks=pytest.mark.server),
    ]
)
def any_pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """Every pair of kinds of storage that is proven."""
    source, target = request.param.split("→")
    return Pair(_open(request, source, tmp_path / "source"), _open(request, target, tmp_path / "target"))


@pytest.fixture
def s3_pair(s3_options: dict[str, object], tmp_path: Path) -> Pair:
    """From a local directory to S3."""
    return Pair(local_place(tmp_path / "source"), s3_place(s3_options, _name()))


def _open(request: pytest.FixtureRequest, kind: str, folder: Path) -> Place:
    match kind:
        case "local":
            return local_place(folder)
        case "memory":
            return memory_place(_name())
        case _:
            return s3_place(request.getfixturevalue("s3_options"), _name())
