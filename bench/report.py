"""Medians, ratios and the table."""

import statistics

from rows import DELAY_ONE_WAY_MS, FIGURES, TITLES

US = "sallyport"
# Closer than this is noise on a machine that does other things besides.
NOISE = 0.05


def medians(samples):
    """{row: {contender: {figure: median over the rounds}}}"""
    collected = {}
    for sample in samples:
        if "figures" not in sample:
            continue
        figures = collected.setdefault(sample["row"], {}).setdefault(sample["contender"], {})
        for figure, value in sample["figures"].items():
            if figure in FIGURES:
                figures.setdefault(figure, []).append(value)
    return {
        row: {name: {figure: statistics.median(values) for figure, values in figures.items()} for name, figures in by.items()}
        for row, by in collected.items()
    }


def ratio(figure, ours, theirs):
    """How far we are ahead: more than 1 is ahead, whichever way the figure counts."""
    more_is_better = FIGURES[figure][1]
    better, worse = (ours, theirs) if more_is_better else (theirs, ours)
    if worse == 0:
        return 1.0 if better == 0 else float("inf")
    return better / worse


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(result, contenders):
    """Lines of text: every figure, with our ratio to each in brackets."""
    lines, behind = [], []
    width = max(14, *(len(name) + 2 for name in contenders))
    for title, chosen in (("Without delay", lambda row: not row.startswith("delay_")),
                          (f"With {2 * DELAY_ONE_WAY_MS} ms of added round trip on the leg", lambda row: row.startswith("delay_"))):
        rows = [row for row in TITLES if row in result and chosen(row)]
        if not rows:
            continue
        lines += ["", title, " " * 54 + "".join(name.rjust(width + 8) for name in contenders)]
        for row in rows:
            heading, compared = TITLES[row]
            for figure in compared:
                cells = []
                ours = result[row].get(US, {}).get(figure)
                for name in contenders:
                    value = result[row].get(name, {}).get(figure)
                    text = "-" if value is None else number(value)
                    if name != US and value is not None and ours is not None:
                        ahead = ratio(figure, ours, value)
                        text += f" ({ahead:.2f})".rjust(8)
                        if ahead < 1 - NOISE:
                            behind.append((row, figure, name, ahead))
                    elif name == US:
                        text += " " * 8
                    cells.append(text.rjust(width + 8))
                lines.append(f"{heading}, {FIGURES[figure][0]}".ljust(54) + "".join(cells))
    if US not in contenders or len(contenders) == 1:
        return lines
    lines += ["", "In brackets: sallyport against that contender; 1 and more is ahead."]
    if behind:
        lines += ["", "Behind:"]
        lines += [f"  {TITLES[row][0]}{' (delayed)' if row.startswith('delay_') else ''}, {FIGURES[figure][0]}: "
                  f"{ahead:.2f} of {name}" for row, figure, name, ahead in behind]
    else:
        lines += ["", f"Behind: nowhere by more than {NOISE:.0%}."]
    return lines
