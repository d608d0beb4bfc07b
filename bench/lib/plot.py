"""Latency against budget as a picture: one panel a model, the limit of physics beside what was measured."""
import sys

from plan import MIB

COLOURS = {"plain": "#888888", "beside": "#17becf", "mmap": "#d62728", "double buffer": "#9467bd",
           "accelerate": "#ff7f0e", "ncnn": "#2ca02c", "ncnn lean": "#98df8a", "swapnet": "#1f77b4"}


def pyplot():
    try:
        import matplotlib
    except ImportError:
        print("bench: no matplotlib (Debian: python3-matplotlib): nothing is drawn",
              file=sys.stderr)
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    return pyplot


def _line(rows, variant, value):
    points = sorted((row["budget_bytes"] / MIB, row[value] * 1e3) for row in rows
                    if row["variant"] == variant and row[value])
    return [x for x, _ in points], [y for _, y in points]


def _panel(axes, model, rows):
    names = list(dict.fromkeys(row["variant"] for row in rows))
    for variant in names:
        axes.plot(*_line(rows, variant, "latency_s"), label=variant, color=COLOURS.get(variant),
                  marker="o", markersize=3, linewidth=1)
    limited = next((row["variant"] for row in reversed(rows) if row["limit_s"]), None)
    if limited:
        axes.plot(*_line(rows, limited, "limit_s"), label="max(T, (e-r)/BW)", color="black",
                  linestyle="--", linewidth=1)
    axes.set(title=f"{model}, {rows[0]['weight_bytes'] / MIB:.0f} MiB", xlabel="budget, MiB",
             ylabel="latency, ms", yscale="log")
    axes.grid(True, which="both", alpha=0.2)


def draw(rows, path):
    """One picture of all models of these rows of results into a file, PNG by its name."""
    plt = pyplot()
    if not plt:
        return
    models = list(dict.fromkeys(row["model"] for row in rows))
    across = min(3, len(models))
    down = -(-len(models) // across)
    figure, panels = plt.subplots(down, across, squeeze=False, figsize=(4.6 * across, 3.6 * down))
    for axes in panels.flat[len(models):]:
        axes.remove()
    for axes, model in zip(panels.flat, models):
        _panel(axes, model, [row for row in rows if row["model"] == model])
    panels.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
