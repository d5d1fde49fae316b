"""Tables of the releases of processes, and of the files of their work."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
)

from feed_assets.log.definitions.records import Member
from feed_assets.sql.column_types import Entries, Text, UtcDateTime
from feed_assets.sql.tables import define_table, metadata


def _member_values(member: Member) -> list[object]:
    return [member.kind, member.name, member.version]


def _to_member(values: list[Any]) -> Member:
    kind, name, version = values
    return Member(kind=kind, name=name, version=version)


releases = define_table(
    "fa_releases",
    Column("process", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("release", BigInteger, nullable=False),
    Column("effective_from", UtcDateTime, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("members", Entries("members", _member_values, _to_member), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    key=("process", "cluster", "release"),
)

workflow_files = Table(
    "fa_workflow_files",
    metadata,
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("digest", name="fa_workflow_files_pk"),
)
