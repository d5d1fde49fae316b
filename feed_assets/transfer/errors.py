"""Errors raised by copies and mirrors."""

from collections.abc import Mapping

from feed_assets.errors import FeedAssetsError, render_some

APPROVAL = "mirror.removals"
"""The property for the number of files that a run may remove regardless of the limits."""


class CopyError(FeedAssetsError):
    """An instance cannot be copied; the target was not changed."""


class SourceNotAvailableError(CopyError):
    """The source has no complete instance."""

    def __init__(self, *, url: str, availability: str, flag: str | None) -> None:
        self.availability = availability
        wanted = f" with its availability flag {flag!r}" if flag else ""
        super().__init__(
            f"{url}: there is no instance to copy: it is {availability}. Copy it once it is available{wanted}; if it "
            "should be, check that the storage is mounted."
        )


class SourceEmptiedError(CopyError):
    """A source without files would empty a target, and nothing proves that the source should be empty."""

    def __init__(self, *, url: str, target: str, files: int) -> None:
        super().__init__(
            f"{url}: it has no files, no availability flag and no manifest, and {target} has {files:,} files that "
            "would be removed. Check that the storage is mounted; if the source should be empty, allow the emptying."
        )


class NothingSelectedError(CopyError):
    """The patterns of a copy match no file of a source that has files."""

    def __init__(self, *, url: str, files: int) -> None:
        super().__init__(
            f"{url}: it has {files:,} files, but the filters of the copy (include, exclude) match none of them, so the "
            "copy would be empty. Correct the filters; if it should be empty, write "
            "replication.allow_empty: true (of a mirror, allow_emptying: true)."
        )


class SourceChangingError(CopyError):
    """The source changed during every try of its copy."""

    def __init__(self, *, url: str, tries: int, reason: str) -> None:
        super().__init__(
            f"{url}: it changed during the copy, {tries} times: {reason}. Copy it when nobody writes to it; copies of "
            "unchanged files are reused."
        )


class SourceDamagedError(CopyError):
    """A file of the source differs from the manifest of its publication."""

    def __init__(self, *, url: str, file: str) -> None:
        super().__init__(
            f"{url}: {file!r} differs from its manifest, although its time shows no later write: it is damaged or was "
            "replaced by hand. Produce the instance again, or repair it from a replica."
        )


class CopyDamagedError(CopyError):
    """The bytes read back at the target differ from the bytes read at the source."""

    def __init__(self, *, url: str, files: tuple[str, ...], tries: int) -> None:
        super().__init__(
            f"{url}: the copies of {render_some(files)} differed from what was read, {tries} times. "
            "Check the storage of the target for faults, and repeat."
        )


class TargetDamagedError(CopyError):
    """Files that should stay at the target differ from its manifest."""

    def __init__(self, *, url: str, files: tuple[str, ...]) -> None:
        super().__init__(
            f"{url}: {render_some(files)} should stay unchanged, but differ from the manifest, and this source "
            "does not have them. Copy them from their origin, or copy without keeping files that the source lacks."
        )


class FilesFailedError(CopyError):
    """Files of a source could not be read. Nothing was published; the other files are staged for the next try."""

    def __init__(self, *, url: str, failures: Mapping[str, str]) -> None:
        named = tuple(f"{file}: {reason}" for file, reason in failures.items())
        super().__init__(
            f"{url}: {len(failures):,} files could not be copied ({render_some(named)}), so nothing was published. "
            "Repair them at the source and repeat the copy; the other files are reused."
        )


class ReplicaLostError(CopyError):
    """The instance that existed at the target when the copy began no longer exists."""

    def __init__(self, *, url: str) -> None:
        super().__init__(f"{url} no longer exists. Repeat the copy.")


class CopyIncompleteError(CopyError):
    """No task has transferred some files of a copy."""

    def __init__(self, *, url: str, files: tuple[str, ...]) -> None:
        super().__init__(
            f"{url}: nobody has copied {render_some(files)}. Repeat the copy; what was copied is used again."
        )


class MirrorEmptiedError(CopyError):
    """The source of a mirror has no files, its target has files, and nothing says that this is intended."""

    def __init__(self, *, url: str, target: str, files: int) -> None:
        super().__init__(
            f"{url}: it has no files, but {target}, its mirror, has {files:,}. Nothing was changed. Check that the "
            "storage is mounted, and that include matches files; if the source is meant to be empty, write "
            "allow_emptying: true."
        )


class RemovalLimitError(CopyError):
    """A run of a mirror would remove more files than its limits allow without approval."""

    def __init__(self, *, target: str, removed: int, standing: int, limit: str) -> None:
        self.removed = removed
        self.approval = f"{APPROVAL}={removed}"
        super().__init__(
            f"{target}: {removed:,} of the {standing:,} files there would be removed, {limit}. Nothing was changed. "
            f"Raise the limits of the mirror, or let one instance remove them by a rerun with {self.approval}."
        )


class ForeignTargetError(CopyError):
    """The first run of a mirror would replace or remove files that no mirror has written."""

    def __init__(self, *, target: str, files: int) -> None:
        self.files = files
        self.approval = f"{APPROVAL}={files}"
        super().__init__(
            f"{target}: {files:,} files there, which no mirror has written, would be replaced or removed. Nothing was "
            f"changed. Name another directory, or let one instance replace them by a rerun with {self.approval}."
        )


class TargetRefusedError(CopyError):
    """The content at the target of a mirror cannot be replaced as a whole."""

    def __init__(self, *, url: str, reason: str) -> None:
        super().__init__(f"{url} cannot be replaced: {reason}. Use a plain directory, or one that does not exist yet.")


class MirrorFailedError(CopyError):
    """One or more of several directories could not be mirrored."""

    def __init__(self, *, failures: Mapping[str, Exception], total: int) -> None:
        lost = [error.removed for error in failures.values() if isinstance(error, RemovalLimitError)]
        lost += [error.files for error in failures.values() if isinstance(error, ForeignTargetError)]
        if len(lost) == len(failures):
            self.approval = f"{APPROVAL}={max(lost)}"
        others = f" The other {total - len(failures)} are mirrored." if len(failures) < total else ""
        first = next(iter(failures.values()))
        super().__init__(
            f"{len(failures)} of {total} directories could not be mirrored ({', '.join(failures)}): {first}{others}"
        )
