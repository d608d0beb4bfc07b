"""The table of one model: a line for each way, a column for each limit."""
import search
import table
from plan import MIB

SMALLEST = "smallest"
table.LEFT |= {"way", "outputs"}  # columns of words


def columns(limits):
    return ("way", "smallest, MiB", "first answer there, s", "ms there",
            *(f"ms in {limit / MIB:.0f} MiB" for limit in limits), "outputs")


def _latency(outcomes, plain):
    """'251 (1.09)': the second number is times the plain program without a limit, in the same rounds."""
    if any(each.ended for each in outcomes):
        return next(each.ended for each in outcomes if each.ended)
    ratio = search.ratio(outcomes, plain)
    return f"{search.latency(outcomes) * 1e3:.0f}" + (f" ({ratio:.2f})" if ratio else "")


def _outputs(outcomes):
    answered = [each for each in outcomes if each.first_seconds is not None]
    if not answered:
        return ""
    off = [each.deviation for each in answered if each.deviation is not None]
    return f"{max(off):.0e} off" if off else "equal bits"


def row(name, found, runs, limits, plain):
    """found: of search.smallest; runs: outcomes of all rounds, by limit and SMALLEST; plain: those of the plain program."""
    there = runs.get(SMALLEST, [])
    first = [each.first_seconds for each in there if each.first_seconds is not None]
    cells = [name, f"{found.smallest_bytes / MIB:.0f}" if found.smallest_bytes else "none",
             f"{min(first):.1f}" if first else "", _latency(there, plain) if there else found.why]
    cells += [_latency(runs[limit], plain) if limit in runs else found.why for limit in limits]
    return [*cells, _outputs([each for some in runs.values() for each in some])]


def title(model, weight_bytes, plain):
    seconds, peak = search.latency(plain), max((each.peak_bytes for each in plain), default=0)
    found = f"{seconds * 1e3:.0f} ms" if seconds else "no answer in time"
    return f"{model}, {weight_bytes / MIB:.0f} MiB of weights; plain without a limit: {found}, {peak / MIB:.0f} MiB"


def text(rows, limits, markdown):
    return (table.markdown_grid if markdown else table.grid)(columns(limits), rows)
