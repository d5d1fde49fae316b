"""Read feed instances into Arrow tables without a JVM, as Spark would read them.

What only Spark can follow (an option, a type, a row of another form) is refused and never read in another way.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json

from feed_assets.engines.port import InputData
from feed_assets.entities.content.columns import parse_columns, parse_nested
from feed_assets.entities.errors import ColumnsError

WITH_SPARK = "Read it in a Spark session, for example with as_='spark'."
_OPTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "csv": frozenset(
            {"header", "sep", "delimiter", "quote", "escape", "nullvalue", "enforceschema", "multiline", "encoding"}
        ),
        "json": frozenset(),
        "parquet": frozenset({"mergeschema"}),
        "orc": frozenset({"mergeschema"}),
        "text": frozenset(),
    }
)
_WRITERS_ONLY = frozenset({"compression", "quoteall", "maxrecordsperfile"})


def read_table(data: InputData) -> pa.Table:
    """Read the instances of an input, which are local directories or files, into one table with the declared schema.

    The defaults are those of `read_input`: a csv has a header line with the names of the schema, in its order; a field
    that is not of its type is null. Timestamps without a zone are in UTC.

    Raises:
        InputReadError: there is no instance, or only Spark can read them as declared.
    """
    if data.table is not None:
        raise data.unreadable("it is in a table of a catalog", WITH_SPARK)
    unknown = {name for name in data.options if name.lower() not in _OPTIONS[data.format] | _WRITERS_ONLY}
    if unknown:
        raise data.unreadable(f"only Spark follows the option {', '.join(sorted(unknown))}", WITH_SPARK)
    if data.columns is None and data.format == "json":
        raise data.unreadable("without a schema only Spark knows its types", f"Declare schema:, or r{WITH_SPARK[1:]}")
    if not data.instances:
        raise data.unreadable("no instance is asked for", "Name one.")
    try:
        schema = None if data.columns is None else parse_arrow_schema(data.columns)
        tables = [
            _with_partitions(data, _read_file(data, file, schema), parts, schema)
            for path in data.paths
            for file, parts in _content_of(Path(urlsplit(path).path if path.startswith("file:") else path))
            if file.stat().st_size
        ]
    except (ValueError, NotImplementedError, OSError) as exc:  # of Arrow, too
        raise data.unreadable(str(exc), WITH_SPARK) from exc
    if not tables:
        return (schema or pa.schema([])).empty_table()
    return pa.concat_tables(tables, promote_options="none" if schema else "default")


def _content_of(place: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield the files of an instance that readers see, in the order of their names, with the values in their paths."""
    if place.is_file():
        yield place, {}
        return
    if not place.is_dir():
        raise FileNotFoundError(f"{place} does not exist")
    for file in sorted(place.rglob("*")):
        parts = file.relative_to(place).parts
        if file.is_file() and not any(part.startswith(".") or (part[0] == "_" and "=" not in part) for part in parts):
            yield file, dict(part.split("=", 1) for part in parts[:-1] if "=" in part)


def _with_partitions(data: InputData, table: pa.Table, parts: Mapping[str, str], schema: pa.Schema | None) -> pa.Table:
    """Fill the columns of partitions, which are in the path and not in the file."""
    if schema is None:
        return table
    for name in set(data.partitions) & set(schema.names) & parts.keys():
        values = _converted(pa.chunked_array([[parts[name]] * len(table)], pa.string()), schema.field(name).type)
        table = table.set_column(schema.get_field_index(name), schema.field(name), values)
    return table


def _read_file(data: InputData, file: Path, schema: pa.Schema | None) -> pa.Table:
    match data.format:
        case "csv":
            return _read_csv(data, file, schema)
        case "json":
            assert schema is not None
            return _read_json(file, schema)
        case "text":
            return _read_text(file)
        case _:
            return _conform(_read_columns(data.format, file), schema)


def _read_csv(data: InputData, file: Path, schema: pa.Schema | None) -> pa.Table:
    options = {name.lower(): value for name, value in data.options.items()}
    has_header = options.get("header", "true").lower() == "true"
    own = [field for field in schema or () if field.name not in data.partitions]
    names = None if has_header else [field.name for field in own] or None
    delimiter, quote = options.get("sep", options.get("delimiter", ",")), options.get("quote", '"')
    escape = options.get("escape", "\\")
    with pa.input_stream(str(file), compression="detect") as stream:
        content = stream.read_buffer()
    if quote and escape != quote and _doubled(delimiter, quote, escape).search(content):
        raise ValueError(f"{file} doubles quotes inside quotes, which needs the feed's option escape: '\"'")
    table = csv.read_csv(
        pa.BufferReader(content),
        csv.ReadOptions(
            column_names=names,
            autogenerate_column_names=not has_header and names is None,
            encoding=options.get("encoding", "utf8"),
        ),
        csv.ParseOptions(
            delimiter=delimiter,
            quote_char=quote or False,
            escape_char=escape if escape and escape != quote else False,
            double_quote=escape == quote,
            newlines_in_values=options.get("multiline", "false").lower() == "true",
        ),
        csv.ConvertOptions(
            check_utf8=True,
            default_column_type=pa.string(),
            null_values=["", *([options["nullvalue"]] if "nullvalue" in options else [])],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    if schema is None:
        return table if has_header else table.rename_columns([f"_c{n}" for n in range(table.num_columns)])
    found, declared = [name.lower() for name in table.column_names], [field.name.lower() for field in own]
    by_position = options.get("enforceschema", "false").lower() == "true"
    if len(found) != len(declared) or (found != declared and not by_position):
        raise ValueError(f"{file} has the columns {', '.join(table.column_names)}, declared are {', '.join(declared)}")
    columns = {field.name: _converted(table.column(position), field.type) for position, field in enumerate(own)}
    return _complete(columns, len(table), schema)


def _doubled(delimiter: str, quote: str, escape: str) -> re.Pattern[bytes]:
    """Return a pattern of two quotes that are no empty field: `"a ""b"" c"`."""
    before = "".join(map(re.escape, (delimiter, escape, "\r", "\n")))
    return re.compile(f"(?<=[^{before}]){re.escape(quote) * 2}".encode())


def _read_json(file: Path, schema: pa.Schema) -> pa.Table:
    as_text = [pa.types.is_timestamp(field.type) or pa.types.is_date(field.type) for field in schema]
    written = pa.schema(
        [field.with_type(pa.string()) if text else field for field, text in zip(schema, as_text, strict=True)]
    )
    table = json.read_json(
        str(file),
        parse_options=json.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore"),
    )
    columns = {name: table.column(name) for name in table.column_names}
    return _complete({name: _converted(columns[name], schema.field(name).type) for name in columns}, len(table), schema)


def _read_text(file: Path) -> pa.Table:
    with pa.input_stream(str(file), compression="detect") as stream:
        text = stream.read().decode("utf-8")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return pa.table({"value": pa.array(lines[:-1] if not lines[-1] else lines, pa.string())})


def _read_columns(file_format: str, file: Path) -> pa.Table:
    if file_format == "orc":
        from pyarrow import orc

        table: pa.Table = orc.read_table(str(file))
        local = set(table.column_names)
    else:
        from pyarrow import parquet

        with parquet.ParquetFile(str(file), coerce_int96_timestamp_unit="us") as opened:
            kinds = [opened.schema.column(position) for position in range(len(opened.schema.names))]
            local = {kind.path for kind in kinds if kind.physical_type == "INT96"}
            table = opened.read()
    for position, name in enumerate(table.column_names):
        column = table.column(position)
        if name in local and pa.types.is_timestamp(column.type) and column.type.tz is None:
            table = table.set_column(position, name, _in_utc(column))
    return table


def _conform(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    if schema is None:
        return table
    positions = {name.lower(): position for position, name in enumerate(table.column_names)}
    columns = {
        field.name: table.column(positions[field.name.lower()]).cast(field.type)
        for field in schema
        if field.name.lower() in positions
    }
    return _complete(columns, len(table), schema)


def _complete(columns: Mapping[str, pa.ChunkedArray], length: int, schema: pa.Schema) -> pa.Table:
    return pa.table(
        [columns.get(field.name, pa.nulls(length, field.type)) for field in schema], schema=schema.remove_metadata()
    )


def _in_utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert text to a type; what does not fit becomes null."""
    if not pa.types.is_string(column.type) or pa.types.is_string(kind):
        return column.cast(kind)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise ValueError(f"only Spark reads the type {kind} from text")
    if pa.types.is_integer(kind) and pc.all(pc.match_substring_regex(column, r"^-?\d{1,18}$")).as_py() is not False:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            pass
    parse = _parser_of(kind)
    texts = pc.unique(column)
    values = pa.array([None if text is None else _try(parse, text) for text in texts.to_pylist()], kind)
    return values.take(pc.index_in(column, texts).combine_chunks())


def _try(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except (ValueError, InvalidOperation):
        return None


def _parser_of(kind: pa.DataType) -> Callable[[str], object]:
    if pa.types.is_boolean(kind):
        return lambda text: {"true": True, "false": False}.get(text.lower())
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return lambda text: value if -most <= (value := int(text)) < most and "_" not in text else None
    if pa.types.is_floating(kind):
        return lambda text: None if "_" in text else float(text)
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind.precision, kind.scale)
    if pa.types.is_date(kind):
        return lambda text: date.fromisoformat(text[:10])
    if pa.types.is_timestamp(kind):
        return lambda text: _moment(text, has_zone=kind.tz is not None)
    raise ValueError(f"only Spark reads the type {kind} from text")


def _decimal(text: str, precision: int, scale: int) -> Decimal | None:
    value = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return value if len(value.as_tuple().digits) <= precision else None


def _moment(text: str, *, has_zone: bool) -> datetime:
    found = datetime.fromisoformat(text)
    if not has_zone:
        return found.replace(tzinfo=None)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")  # decimal(10, 2)
_TEXT = re.compile(r"(?:var)?char\(\s*\d+\s*\)")  # varchar(10)
_NAMES = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool_",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}


def parse_arrow_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of columns in Spark's DDL. A timestamp is one in UTC, of microseconds.

    Raises:
        ValueError: a type is unknown here, or the text is no list of columns.

    >>> parse_arrow_schema("origin string, delay double NOT NULL, at timestamp").field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    try:
        return pa.schema([pa.field(name, _type(kind)) for name, kind in parse_columns(columns)])
    except ColumnsError as exc:
        raise ValueError(str(exc)) from exc


def _type(text: str) -> pa.DataType:
    name, inside = parse_nested(text)
    kinds = [(part, _type(kind)) for part, kind in inside]
    match name:
        case "struct" if kinds:
            return pa.struct([pa.field(part, kind) for part, kind in kinds])
        case "array" if kinds:
            return pa.list_(kinds[0][1])
        case "map" if len(kinds) == 2:
            return pa.map_(kinds[0][1], kinds[1][1])
    name = name.lower()
    if found := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(found[1] or 10), int(found[2] or 0))
    if name in ("timestamp", "timestamp_ltz"):
        return pa.timestamp("us", "UTC")
    if name == "timestamp_ntz":
        return pa.timestamp("us")
    if _TEXT.fullmatch(name):
        return pa.string()
    if name not in _NAMES:
        raise ValueError(f"{text!r} is a type that only Spark reads")
    kind: pa.DataType = getattr(pa, _NAMES[name])()
    return kind
