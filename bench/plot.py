"""Small charts as SVG, written by hand: no library is needed for a dozen points."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 340, 230, 48


def nice(top):
    """A round number that is not below."""
    power = 10 ** math.floor(math.log10(top)) if top > 0 else 1
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if step * power >= top * 0.999)


def label(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


#: The line of each contender, ours first.
COLOURS = ("#246", "#c62", "#693", "#849")


def chart(left, upper, title, axis, lines):
    """One chart: name -> points (x, y), with x on a logarithmic scale from 1 and y from 0."""
    every = [point for points in lines.values() for point in points]
    top, last = nice(max(y for _, y in every)), max(math.log10(x) for x, _ in every) or 1
    inner_width, inner_height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(x, y):
        return left + MARGIN + math.log10(x) / last * inner_width, upper + HEIGHT - MARGIN - y / top * inner_height

    parts = [f'<text x="{left + WIDTH / 2}" y="{upper + 18}" text-anchor="middle" font-weight="bold">{escape(title)}</text>',
             f'<text x="{left + WIDTH / 2}" y="{upper + HEIGHT - 8}" text-anchor="middle">{escape(axis)}</text>']
    for share in (0, 0.5, 1):
        x, y = place(1, top * share)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + inner_width:.1f}" y2="{y:.1f}" stroke="#ccc"/>')
        parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{label(top * share)}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*each) for each in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x_value, y_value in points:
            x, y = place(x_value, y_value)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{escape(name)}, {x_value:,}: {label(y_value)}</title></circle>')
        if len(lines) > 1:
            x = left + MARGIN + number * inner_width / len(lines)
            parts.append(f'<text x="{x:.1f}" y="{upper + 34}" fill="{colour}">{escape(name)}</text>')
    for x_value in sorted({x for x, _ in every}):
        x, _ = place(x_value, 0)
        parts.append(f'<text x="{x:.1f}" y="{upper + HEIGHT - MARGIN + 16}" text-anchor="middle">{x_value:,}</text>')
    return parts


def svg(rows):
    """A picture of rows of charts; a chart is (title, what grows, name -> points)."""
    width, height = WIDTH * max(len(row) for row in rows), HEIGHT * len(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="11">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, row in enumerate(rows):
        for column, (title, axis, lines) in enumerate(row):
            parts += chart(column * WIDTH, number * HEIGHT, title, axis, lines)
    return "\n".join([*parts, "</svg>", ""])


def growth(found):
    """The picture of what was found: what grows -> contender -> its points."""
    def charts(title, key, scale):
        return [(title, name, {who: [(each["n"], each[key] / scale) for each in points] for who, points in by.items()})
                for name, by in found.items()]

    return svg([charts("the server's CPU us a request", "cpu_us", 1), charts("both sides' CPU us a request", "both_cpu_us", 1),
                charts("memory of the server, MiB", "server_kib", 1024)])
