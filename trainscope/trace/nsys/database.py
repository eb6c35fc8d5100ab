"""A SQLite file as columns: whole numbers as int64, whatever else a damaged file may hold."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from trainscope.errors import TraceError
from trainscope.trace.window import Column

__all__ = ["MAGIC", "NOTHING", "NO_NUMBER", "Database", "opened"]

MAGIC = b"SQLite format 3\0"
NOTHING = -(2**63)
"""Stands for NULL in a column."""
NO_NUMBER = -(2**63) + 1
"""Stands for text, a fraction or bytes where a whole number is expected."""

_LONGEST_TEXT = 10_000
"""Characters of a name that are kept."""
_PLAIN_TABLES = (
    "select name from sqlite_master where type = 'table' and upper(sql) like 'CREATE TABLE%'"
)


class Database:
    """The plain tables of one file; views, virtual tables and computed columns are not looked at.

    Those can make a small file give rows without end.
    """

    def __init__(self, connection: sqlite3.Connection, told: Callable[[int], None]) -> None:
        self._connection = connection
        self._told = told
        self._columns: dict[str, frozenset[str]] = {}
        self.tables = frozenset(str(row[0]) for row in connection.execute(_PLAIN_TABLES))

    def columns(self, table: str) -> frozenset[str]:
        """Names of the table's columns; empty where there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            found = self._connection.execute(f"pragma table_info({_quoted(table)})")
            self._columns[table] = frozenset(str(row[1]) for row in found)
        return self._columns[table]

    def count(self, table: str) -> int:
        """How many rows the table has; 0 where there is no such table."""
        if table not in self.tables:
            return 0
        return self._connection.execute(f"select count(*) from {_quoted(table)}").fetchone()[0]

    def numbers(self, table: str, columns: Sequence[str]) -> dict[str, Column]:
        """Those of the columns that the table has, ``NOTHING`` and ``NO_NUMBER`` among the numbers.

        Empty where there is no such table.
        """
        there = [name for name in columns if name in self.columns(table)]
        if not there:
            return {}
        checked = ", ".join(
            f"case typeof({column}) when 'integer' then {column} when 'null' then {NOTHING} "
            f"else {NO_NUMBER} end"
            for column in map(_quoted, there)
        )
        rows = self._connection.execute(_all_rows(checked, table))
        flat = np.fromiter(itertools.chain.from_iterable(self._counted(rows)), dtype=np.int64)
        return dict(zip(there, flat.reshape(-1, len(there)).T.copy(), strict=True))

    def texts(self, table: str, column: str) -> Iterator[str | None]:
        """The column's text row by row, cut to a name's length; None for what is no text."""
        name = _quoted(column)
        cut = f"case typeof({name}) when 'text' then substr({name}, 1, {_LONGEST_TEXT}) end"
        rows = self._connection.execute(_all_rows(cut, table))
        return (row[0] for row in self._counted(rows))

    def names(self, table: str, key: str, column: str) -> Mapping[int, str]:
        """Text by number; empty where there is no such table or column."""
        if not {key, column} <= self.columns(table):
            return {}
        keys = self.numbers(table, [key])[key].tolist()
        found = zip(keys, self.texts(table, column), strict=True)
        return {number: text for number, text in found if number > NO_NUMBER and text is not None}

    def _counted(self, rows: sqlite3.Cursor) -> Iterator[tuple]:  # type: ignore[type-arg]
        while piece := rows.fetchmany(20_000):
            self._told(len(piece))
            yield from piece


@contextmanager
def opened(path: Path, shown: Path, told: Callable[[int], None]) -> Iterator[Database]:
    """The database of a file, for reading only; ``told`` hears of rows as they are read.

    Raises TraceError, naming ``shown``, when it is no SQLite file, cut off or damaged.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise TraceError(f"{shown} cannot be read: {error.strerror or error}") from error
    if magic != MAGIC:
        what = "empty" if not magic else "no SQLite file"
        raise TraceError(
            f"{shown} is {what}: give what `nsys export --type sqlite` wrote, or the .nsys-rep"
        )
    try:
        # Immutable: no lock, and no journal is made or looked for beside the file.
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = _decoded
            connection.execute("pragma trusted_schema = off")
            connection.execute("pragma cell_size_check = on")
            yield Database(connection, told)
    # Where SQLite's own message quotes damaged bytes, Python cannot even make its error of it.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        why = error if isinstance(error, sqlite3.Error) else "a name in it is no text"
        raise TraceError(
            f"{shown} is cut off or damaged: {why}; export it again from the .nsys-rep"
        ) from error


def _all_rows(columns: str, table: str) -> str:
    """Rows in the order of the table, the same for each query: an index would bring its own."""
    return f"select {columns} from {_quoted(table)} not indexed"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
