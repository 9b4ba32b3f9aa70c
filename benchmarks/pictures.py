"""Figures as SVG: lines, bars or dots in panels beside each other, in benchmarks/figures.

The same data gives the same file: no date, fixed ids, and text stays text, which also keeps
files small. What is drawn is data (`Panel`), so a benchmark needs no matplotlib of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

FIGURES = Path(__file__).parent / "figures"
Number = int | float
# Colours that stay apart for the colour blind, and in print by their marks.
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
_MARKS = "os^vD<>P"
_DASHES = ("-", "--", "-.", ":")
_STYLE = {
    "svg.hashsalt": "spark-cep",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "path.simplify": True,
}
_PANEL_INCHES = (4.2, 3.0)
# Of a panel of dots, and of one of its rows.
_DOTS_WIDTH, _DOT_ROW = 2.6, 0.22


@dataclass(frozen=True)
class Panel:
    """`series`: for each name one value for each of `at`, None where there is none. Text in `at`
    makes categories. `dots` has a row for each of `at`, the first on top; its panels have the same
    rows, and only the first one names them."""

    title: str
    x: str
    y: str
    at: Sequence[Number | str]
    series: Mapping[str, Sequence[Number | None]]
    kind: Literal["lines", "bars", "dots"] = "lines"
    log_x: bool = False
    log_y: bool = False
    marked: bool = True


def draw(
    name: str, panels: Sequence[Panel], folder: Path = FIGURES, *, names: Sequence[str] = ()
) -> Path:
    """Writes `name`.svg and returns its path. A series has the same colour in every panel; given
    all `names` that there are, in every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    drawn = [each for panel in panels for each in panel.series]
    names = list(dict.fromkeys((*names, *drawn)))
    width, height = _PANEL_INCHES
    dots = panels[0].kind == "dots"
    if dots:
        width, height = _DOTS_WIDTH, 0.8 + _DOT_ROW * len(panels[0].at)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width * len(panels), height + 0.5), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False, sharey=dots)[0]
        for panel, axis in zip(panels, axes, strict=True):
            _panel(axis, panel, names)
        _legend(figure, axes)
        # SVG has no page: without a background, text vanishes on dark sites.
        figure.savefig(path, format="svg", facecolor="white", metadata=_NO_METADATA)
    return path


_NO_METADATA = {"Date": None, "Creator": None}


def _panel(axis: Axes, panel: Panel, names: Sequence[str]) -> None:
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x)
    axis.set_ylabel(panel.y)
    axis.set_axisbelow(True)
    if panel.kind == "dots":
        _dots(axis, panel, names)
        return
    if panel.kind == "bars":
        _bars(axis, panel, names)
    else:
        _lines(axis, panel, names)
    _scale(axis, panel)


def _scale(axis: Axes, panel: Panel) -> None:
    if panel.log_x:
        axis.set_xscale("log")
        _log_ticks(axis.xaxis, axis.get_xlim())
    if panel.log_y:
        axis.set_yscale("log")
        _log_ticks(axis.yaxis, axis.get_ylim())
    else:
        axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
    axis.minorticks_off()


def _log_ticks(axis: Axis, limits: tuple[float, float]) -> None:
    """Powers of ten alone where there are enough of them."""
    low, high = limits
    subs = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:,.0f}" if at >= 1 else f"{at:g}"))


def _lines(axis: Axes, panel: Panel, names: Sequence[str]) -> None:
    for name, values in panel.series.items():
        number = names.index(name)
        axis.plot(
            list(panel.at),
            [np.nan if value is None else value for value in values],
            label=name,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle=_DASHES[number % len(_DASHES)],
            linewidth=1.2,
            marker=_MARKS[number % len(_MARKS)] if panel.marked else None,
            # Hollow and each smaller than the one before: where lines meet, all can be seen.
            markerfacecolor="none",
            markersize=8 - 0.7 * (number % len(_MARKS)),
        )


def _bars(axis: Axes, panel: Panel, names: Sequence[str]) -> None:
    width = 0.8 / len(panel.series)
    places = np.arange(len(panel.at))
    for turn, (name, values) in enumerate(panel.series.items()):
        heights = [np.nan if value is None else value for value in values]
        colour = _COLOURS[names.index(name) % len(_COLOURS)]
        shift = (turn - (len(panel.series) - 1) / 2) * width
        axis.bar(places + shift, heights, width, label=name, color=colour)
    axis.set_xticks(places, [str(each) for each in panel.at])


def _dots(axis: Axes, panel: Panel, names: Sequence[str]) -> None:
    rows = np.arange(len(panel.at))
    for name, values in panel.series.items():
        number = names.index(name)
        axis.plot(
            [np.nan if value is None else value for value in values],
            rows,
            label=name,
            color=_COLOURS[number % len(_COLOURS)],
            linestyle="none",
            marker=_MARKS[number % len(_MARKS)],
            # The first series is the one that the picture is about.
            markerfacecolor="none" if number else None,
            markersize=6,
        )
    axis.set_yticks(rows, [str(each) for each in panel.at])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(left=min(0, axis.get_xlim()[0]))


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One for all panels, below them."""
    found = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        ncols=min(len(found), 4 * len(axes)),
        frameon=False,
    )
