"""The first rows of a file, in each format that is read without Spark."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path

import pytest

from feed_assets.engines.data.file_heads import HeadOptions, Row, read_head


def head_of(
    content: bytes, data_format: str, name: str = "part-0", options: Mapping[str, str] | None = None
) -> list[Row] | None:
    head = HeadOptions(rows=2, width=2, options=options or {}, columns=["x", "y", "z"])
    return read_head(name, data_format, io.BytesIO(content), head)


@pytest.mark.parametrize(
    ("data_format", "content", "options", "rows"),
    [
        ("csv", b'a,b,c\n1,"2,\n2",3\n4,5,6\n7,8,9\n', {}, [{"a": "1", "b": "2,\n2"}, {"a": "4", "b": "5"}]),
        ("csv", b"1;2;3\n", {"Header": "false", "delimiter": ";"}, [{"x": "1", "y": "2"}]),
        ("csv", b"", {}, []),
        ("csv", b"a||b\n", {"sep": "||"}, []),
        ("json", b'{"a": 1, "b": null, "c": 2}\n{"a": [1]}\n{}\n', {}, [{"a": 1, "b": None}, {"a": [1]}]),
        ("text", b"one\r\ntwo\nthree\n", {}, [{"value": "one"}, {"value": "two"}]),
    ],
)
def test_lines_are_read_as_spark_reads_them(
    data_format: str, content: bytes, options: dict[str, str], rows: list[Row]
) -> None:
    assert head_of(content, data_format, options=options) == rows


@pytest.mark.parametrize("data_format", ["parquet", "orc"])
def test_columnar_files_are_read_from_their_first_rows(tmp_path: Path, data_format: str) -> None:
    import pyarrow as pa
    from pyarrow import orc, parquet

    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, 1.5, 2.5]})
    file = tmp_path / "part-0"
    (parquet.write_table if data_format == "parquet" else orc.write_table)(table, file)
    assert head_of(file.read_bytes(), data_format) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_compressed_lines_are_read_and_unknown_codecs_left_alone() -> None:
    assert head_of(gzip.compress(b"one\n"), "text", "part-0.txt.gz") == [{"value": "one"}]
    assert head_of(b"?", "text", "part-0.txt.zst") is None
    assert head_of(b"?", "avro") is None


@pytest.mark.parametrize("data_format", ["parquet", "orc", "json"])
def test_what_is_not_in_the_format_is_refused(data_format: str) -> None:
    with pytest.raises((ValueError, OSError)):
        head_of(b"not at all\n", data_format)
