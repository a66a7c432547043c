"""Draws panels of the dashboard as SVG, from the answers of a Prometheus: no Grafana is needed, nor had here."""
import html
import math

COLOURS = ["#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300"]
BACK, PANEL, LINE, TEXT, FAINT = "#111217", "#181b1f", "#2c3235", "#d8d9da", "#8e8e8e"
# Columns of Grafana's grid are that wide, rows that high.
COLUMN, ROW, GAP = 50, 34, 8
LEGEND_MAX = 4


def number(value, unit, decimals=None):
    """As Grafana writes it, nearly."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "d":
        return f"{value:.3g} days"
    if unit in ("bytes", "Bps"):
        power = 0 if value < 1 else min(3, int(math.log(value, 1024)))
        return f"{value / 1024 ** power:.3g} {['B', 'KiB', 'MiB', 'GiB'][power]}" + ("/s" if unit == "Bps" else "")
    shown = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return shown + {"ops": " /s", "reqps": " /s"}.get(unit, "")


def label(x, y, text, size=12, colour=TEXT, anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{html.escape(text)}</text>")


class Box:
    """Where a panel lies."""

    def __init__(self, place, left, top):
        self.x, self.y = place["x"] * COLUMN - left + GAP, place["y"] * ROW - top + GAP
        self.width, self.height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP

    def frame(self, title):
        return (f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="3" fill="{PANEL}" stroke="{LINE}"/>'
                + label(self.x + 10, self.y + 18, title, 12, TEXT, weight="600"))


def colour_of(value, thresholds):
    named = {"green": "#73bf69", "yellow": "#fade2a", "red": "#f2495c"}
    reached = [step for step in thresholds["steps"] if step["value"] is None or value >= step["value"]]
    return named[reached[-1]["color"]]


def stat(box, panel, series):
    defaults = panel["fieldConfig"]["defaults"]
    shown = [points[-1][1] for _, points in series if points]
    value = shown[0] if shown else math.nan
    text, colour = ("No data", FAINT) if math.isnan(value) else (number(value, defaults["unit"], defaults.get("decimals")), colour_of(value, defaults["thresholds"]))
    return box.frame(panel["title"]) + label(box.x + box.width / 2, box.y + box.height / 2 + 24, text, 26, colour, "middle", "600")


def graph(box, panel, series, start, end):
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    series = sorted(series, key=lambda one: -max((value for _, value in one[1]), default=0))
    series = [one for one in series if any(value for _, value in one[1])] or series[:1]
    series = series[:len(COLOURS)]
    legend = series[:LEGEND_MAX]
    left, right, top, bottom = box.x + 58, box.x + box.width - 12, box.y + 30, box.y + box.height - 24 - 15 * len(legend)
    highest = max((value for _, points in series for _, value in points), default=0)
    if stacked:
        sums = {}
        for _, points in series:
            for at, value in points:
                sums[at] = sums.get(at, 0) + value
        highest = max(sums.values(), default=0)
    highest = max(highest * 1.1, defaults.get("max", 0) if defaults["unit"] == "percentunit" else 0) or 1
    drawn = [box.frame(panel["title"])]
    for part in range(3):
        y = bottom - (bottom - top) * part / 2
        drawn.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        drawn.append(label(left - 6, y + 4, number(highest * part / 2, defaults["unit"]), 10, FAINT, "end"))
    below = {}
    for place, (name, points) in enumerate(series):
        colour = COLOURS[place % len(COLOURS)]
        line, last = [], None
        for at, value in points:
            height = value + (below.get(at, 0) if stacked else 0)
            x, y = left + (right - left) * (at - start) / (end - start), bottom - (bottom - top) * min(height / highest, 1)
            step = last is not None and at - last <= 3
            line.append(f"{'L' if step else 'M'}{x:.0f} {y:.0f}")
            last = at
            if stacked:
                below[at] = height
        drawn.append(f'<path d="{"".join(line)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if place < len(legend):
            y = bottom + 22 + 15 * place
            drawn.append(f'<rect x="{box.x + 10}" y="{y - 6}" width="12" height="3" fill="{colour}"/>')
            drawn.append(label(box.x + 28, y, name or panel["title"], 10, TEXT))
            drawn.append(label(right, y, number(points[-1][1] if points else 0, defaults["unit"]), 10, FAINT, "end"))
    return "".join(drawn)


def draw(rows, answers, start, end, caption):
    """rows by title, of panels as the dashboard has them; answers by panel id: [(name, [(time, value)])]."""
    drawn, top = [], 0
    for title, panels in rows.items():
        drawn.append(label(GAP + 2, top + 22, title, 14, TEXT, weight="600"))
        top += 26
        for panel in panels:
            place = panel["gridPos"]
            box, series = Box(place, 0, place["y"] * ROW - top), answers[panel["id"]]
            drawn.append(stat(box, panel, series) if panel["type"] == "stat" else graph(box, panel, series, start, end))
            if place is panels[-1]["gridPos"] or panels[panels.index(panel) + 1]["gridPos"]["x"] <= place["x"]:
                top += place["h"] * ROW
    width, height = 24 * COLUMN + GAP, top + 34
    drawn.append(label(GAP + 2, height - 9, caption, 11, FAINT))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Inter, Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="{BACK}"/>', *drawn, "</svg>", ""])
