"""Rules about what is declared of the columns of outputs."""

from collections.abc import Iterator

from feed_assets.entities.content.columns import has_path
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath
from feed_assets.validation.scope import Complaint, Scope, column_names


def check_lineage(scope: Scope, process: Process) -> Iterator[Complaint]:
    """The columns must be those of the output's feed, their sources those of inputs, as far as schemas are declared."""
    inputs = {name: scope.bundle.find_feed(item.feed) for name, item in process.inputs.items()}
    for name, output in process.outputs.items():
        feed = scope.bundle.find_feed(output.feed)
        for column, sources in output.column_lineage.items():
            path: FieldPath = ("outputs", name, "column_lineage", column)
            yield from _check_column(feed, column, path)
            for source in sources:
                read, _, of_input = source.partition(".")
                if not read or not of_input:
                    remedy = f"Write it as {next(iter(inputs), 'input')}.{read or of_input or 'column'}."
                    yield Complaint(path=path, message=f"{source!r} is no column of an input", remedy=remedy)
                    continue
                yield from _check_column(inputs.get(read), of_input, path)
                if read not in inputs:
                    remedy = f"Write one of {', '.join(inputs)}." if inputs else "Remove the source."
                    yield Complaint(path=path, message=f"{source!r} names {read!r}, which is no input", remedy=remedy)


def _check_column(feed: Feed | None, column: str, path: FieldPath) -> Iterator[Complaint]:
    """Complain of a column that a declared schema does not have; of a field in it, a column that may have fields."""
    known = column_names(feed) if feed is not None else None
    if feed is None or feed.columns is None or known is None or has_path(feed.columns, column):
        return
    if column not in feed.partitions:
        message = f"{column!r} is no column of the schema of feed {feed.name!r}"
        yield Complaint(path=path, message=message, remedy=f"Write one of {', '.join(sorted(known))}.")
