"""Medians, ratios and the table."""

import statistics

from rows import FIGURES, SETS, STAGES, TITLES

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
    """Lines of text: every figure, with our ratio to each in brackets. `contenders`: set -> the names in it."""
    lines, behind, compared = [], [], False
    for group, names in contenders.items():
        compared |= US in names and len(names) > 1
        for stage in STAGES:
            rows = [row for row in SETS[group] if row.stage == stage and row.name in result]
            if rows:
                lines += _part(result, f"{TITLES[group]}{STAGES[stage]}", rows, names, behind)
    if not compared:
        return lines
    lines += ["", "In brackets: sallyport against that contender; 1 and more is ahead."]
    if behind:
        lines += ["", "Behind:"]
        lines += [f"  {row.name}: {row.title}, {FIGURES[figure][0]}: {ahead:.2f} of {name}"
                  for row, figure, name, ahead in behind]
    else:
        lines += ["", f"Behind: nowhere by more than {NOISE:.0%}."]
    return lines


def _part(result, heading, rows, names, behind):
    """One set in one stage; adds to `behind` where we are."""
    width = max(14, *(len(name) + 2 for name in names)) + 8
    label = max(len(f"{row.title}, {FIGURES[figure][0]}") for row in rows for figure in row.figures)
    lines = ["", heading, " " * label + "".join(name.rjust(width) for name in names)]
    for row in rows:
        for figure in row.figures:
            cells = []
            ours = result[row.name].get(US, {}).get(figure)
            for name in names:
                value = result[row.name].get(name, {}).get(figure)
                text = "-" if value is None else number(value)
                if name != US and value is not None and ours is not None:
                    ahead = ratio(figure, ours, value)
                    text += f" ({ahead:.2f})".rjust(8)
                    if ahead < 1 - NOISE:
                        behind.append((row, figure, name, ahead))
                elif name == US:
                    text += " " * 8
                cells.append(text.rjust(width))
            lines.append(f"{row.title}, {FIGURES[figure][0]}".ljust(label) + "".join(cells))
    return lines
