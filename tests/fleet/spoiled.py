"""Rows that somebody writes into a fleet's table without `push`."""

from closedform.fleet import FleetTable


def spoil(table, **wrong):
    """Appends the table's first row again, with other facts."""
    import pyarrow as pa

    row = table._table.search().limit(1).to_arrow().to_pylist()[0]
    row = {**row, "episode": "0" * 64, **wrong}
    table._table.add(pa.Table.from_pylist([row], schema=table._table.schema))
    FleetTable.refresh(table)
