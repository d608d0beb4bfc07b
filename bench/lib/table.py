"""Rows of results as text or Markdown."""
from plan import MIB

COLUMNS = ("model", "MiB", "point", "budget", "variant", "latency ms", "x plain", "limit ms",
           "by layers", "limit/lat", "beside", "bound", "x bound", "disk MB/s", "read/pass", "peak", "cache", "same bits", "note")
LEFT = {"model", "variant", "program", "note"}


def mib(value):
    return "" if value is None else f"{value / MIB:.0f}"


def number(value, text):
    return "" if value is None else format(value, text)


def same_bits(value):
    return {None: "", True: "yes", False: "NO"}[value]


def _outputs(row):
    """yes, NO, or how far off another framework is."""
    return same_bits(row["same_bits"]) if row["deviation"] is None else f"{row['deviation']:.0e}"


def _cells(row):
    latency, limit = row["latency_s"], row["limit_s"]
    efficiency = limit / latency if latency and limit else None
    return (row["model"], mib(row["weight_bytes"]), row["point"], mib(row["budget_bytes"]),
            row["variant"], number(latency and latency * 1e3, ".1f"),
            number(row["ratio"], ".2f"), number(limit and limit * 1e3, ".1f"),
            number(row["layered_limit_s"] and row["layered_limit_s"] * 1e3, ".1f"),
            number(efficiency, ".2f"), number(row["beside_s"] and row["beside_s"] * 1e3, ".1f"),
            number(row["bound_s"] and row["bound_s"] * 1e3, ".1f"), number(row["of_bound"], ".2f"),
            number(row["bandwidth"] / 1e6, ".0f"),
            mib(row["read_per_pass"]), mib(row["over_base_bytes"]),
            mib(row["file_peak_bytes"]), _outputs(row), row["note"])


def _blank_repeats(rows):
    """Leave out the model and point where they repeat the line above: easier to read."""
    previous = None
    for cells in rows:
        key = cells[:4]
        yield (("",) * 4 if key == previous else key) + cells[4:]
        previous = key


def text(rows):
    return grid(COLUMNS, list(_blank_repeats(_cells(row) for row in rows)))


def markdown(rows):
    return markdown_grid(COLUMNS, [_cells(row) for row in rows])


def markdown_grid(columns, rows):
    lines = ["| " + " | ".join(columns) + " |",
             "|" + "|".join(":--" if name in LEFT else "--:" for name in columns) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def grid(columns, rows):
    """Aligned columns; names and notes to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in [columns, *rows]) for i in range(len(columns))]
    lines = []
    for line in [columns, tuple("-" * width for width in widths), *rows]:
        lines.append("  ".join(cell.ljust(width) if name in LEFT else cell.rjust(width)
                               for cell, width, name in zip(line, widths, columns)).rstrip())
    return "\n".join(lines)
