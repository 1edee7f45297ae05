"""Medians, ratios, targets, the results that are kept, and what moved since the last one."""

import statistics

from contenders import REFERENCES
from harness import QUIET_PERCENT
from rows import BEST, FIGURES, LIMITS, SETS, STAGES, TARGETS, TITLES, US

#: Peers of which one is the best in each row that has a target against the best: a result without them says nothing of it.
BEST_AMONG = ("frp-pool", "rathole")
# Closer than this is noise on a machine that does other things besides.
NOISE = 0.05
# From one run to another: other cells, perhaps another machine.
NOISE_BETWEEN_RUNS = 0.10


def medians(samples):
    """{row: {contender: {figure: median over the rounds}}}, of the rounds that others did not disturb"""
    cells, collected = {}, {}
    for sample in samples:
        if "figures" in sample:
            cells.setdefault((sample["row"], sample["contender"]), []).append(sample)
    for (row, contender), measured in cells.items():
        figures = collected.setdefault(row, {}).setdefault(contender, {})
        for sample in undisturbed(measured):
            for figure, value in sample["figures"].items():
                if figure in FIGURES:
                    figures.setdefault(figure, []).append(value)
    return {
        row: {name: {figure: statistics.median(values) for figure, values in figures.items()} for name, figures in by.items()}
        for row, by in collected.items()
    }


def undisturbed(samples):
    """Those during which others left the machine alone; where there is none, the least disturbed."""
    quiet = [sample for sample in samples if sample["foreign_percent"] < QUIET_PERCENT]
    return quiet or [min(samples, key=lambda sample: sample["foreign_percent"])]


def ratio(figure, ours, theirs):
    """How far we are ahead: more than 1 is ahead, whichever way the figure counts."""
    more_is_better = FIGURES[figure][1]
    better, worse = (ours, theirs) if more_is_better else (theirs, ours)
    if worse == 0:
        return 1.0 if better == 0 else None
    return better / worse


def best_peer(figure, by):
    """The best of the encrypted tunnels beside us, and its value; none where there is none."""
    peers = [(figures[figure], name) for name, figures in by.items()
             if figure in figures and name != US and name not in REFERENCES]
    if not peers:
        return None, None
    value, name = (max if FIGURES[figure][1] else min)(peers)
    return name, value


def rows(result):
    """The result as a list, in the order of the tables: ours beside the best peer, and what references there are."""
    found = []
    for row in (row for table in SETS.values() for row in table if row.name in result):
        by = result[row.name]
        for figure in row.figures:
            ours = by.get(US, {}).get(figure)
            if ours is None:
                continue
            name, value = best_peer(figure, by)
            unit, more_is_better = FIGURES[figure]
            references = {other: {"value": figures[figure], "ratio": rounded(ratio(figure, ours, figures[figure]))}
                          for other, figures in by.items() if other in REFERENCES and figure in figures}
            found.append({"metric": f"{row.name}.{figure}", "ours": ours, "best_peer": value, "best_peer_name": name,
                          "ratio_to_best_peer": None if value is None else rounded(ratio(figure, ours, value)),
                          "unit": unit, "higher_is_better": more_is_better, "references": references})
    return found


def rounded(value):
    return None if value is None else round(value, 3)


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
            shown = [row for row in SETS[group] if row.stage == stage and row.name in result]
            if shown:
                lines += _part(result, f"{TITLES[group]}{STAGES[stage]}", shown, names, behind)
    if not compared:
        return lines
    references = sorted({name for names in contenders.values() for name in names if name in REFERENCES})
    lines += ["", "In brackets: sallyport against that contender; 1 and more is ahead."]
    if references:
        lines.append(f"References, which are no peers: {', '.join(references)}.")
    if behind:
        lines += ["", "Behind a peer:"]
        lines += [f"  {row.name}: {row.title}, {FIGURES[figure][0]}: {ahead:.2f} of {name}"
                  for row, figure, name, ahead in behind]
    elif any(name not in REFERENCES and name != US for names in contenders.values() for name in names):
        lines += ["", f"Behind a peer: nowhere by more than {NOISE:.0%}."]
    return lines


def _part(result, heading, shown, names, behind):
    """One set in one stage; adds to `behind` where we are."""
    width = max(14, *(len(name) + 2 for name in names)) + 8
    label = max(len(f"{row.title}, {FIGURES[figure][0]}") for row in shown for figure in row.figures)
    lines = ["", heading, " " * label + "".join(name.rjust(width) for name in names)]
    for row in shown:
        for figure in row.figures:
            cells = []
            ours = result[row.name].get(US, {}).get(figure)
            for name in names:
                value = result[row.name].get(name, {}).get(figure)
                text = "-" if value is None else number(value)
                if name == US:
                    text += " " * 8
                elif value is not None and ours is not None:
                    ahead = ratio(figure, ours, value)
                    text += "     (-)" if ahead is None else f" ({ahead:.2f})".rjust(8)
                    if ahead is not None and ahead < 1 - NOISE and name not in REFERENCES:
                        behind.append((row, figure, name, ahead))
                cells.append(text.rjust(width))
            lines.append(f"{row.title}, {FIGURES[figure][0]}".ljust(label) + "".join(cells))
    return lines


def targets(result):
    """Lines of text: how far each target is reached, where its row was measured."""
    lines = []
    for target in TARGETS:
        by = result.get(target.row, {})
        ours = by.get(target.ours, {}).get(target.figure)
        name, theirs = best_peer(target.figure, by) if target.against == BEST else (target.against, None)
        theirs = by.get(name, {}).get(target.figure) if name else None
        if ours is None or theirs is None:
            continue
        ahead = ratio(target.figure, ours, theirs)
        against = f"{name}, {BEST}" if target.against == BEST else name
        verdict = "-" if ahead is None else "reached" if ahead >= target.at_least else "MISSED"
        lines.append(f"  {verdict:8} {named(target)}.{target.figure}: {'-' if ahead is None else f'{ahead:.2f}'} of {against}, "
                     f"wanted {target.at_least:.2f}")
    for limit in LIMITS:
        ours = result.get(limit.row, {}).get(limit.ours, {}).get(limit.figure)
        if ours is not None:
            verdict = "reached" if ours <= limit.most else "MISSED"
            lines.append(f"  {verdict:8} {named(limit)}.{limit.figure}: {number(ours)}, wanted at most {number(limit.most)}")
    return ["", "Targets:", *lines] if lines else []


def named(wanted):
    """The row of a target or limit, with the contender where that is a variant of ours."""
    return wanted.row if wanted.ours == US else f"{wanted.row} {wanted.ours}"


def newest(results, find):
    """What `find` gives of the newest of `results` (name and content, newest first) of which it gives anything, after that one's name."""
    return next(((name, found) for name, result in results if (found := find(result)) is not None), (None, None))


def standing(results):
    """Lines of Markdown: each target and limit by the newest of `results` (name and content, newest first) that has all it needs, with
    how many rounds it is of."""
    rounds = {name: result.get("rounds") for name, result in results}
    lines = ["| row | figure | wanted | ours | theirs | ahead | |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for target in TARGETS:
        name, stands = newest(results, lambda result: _stands(target, result["medians"].get(target.row, {})))
        shown = f"{'| ' * 4}| not measured" if name is None else f"{stands[0]} {_verdict(stands[1], name, rounds[name])}"
        lines.append(f"| `{named(target)}` | {FIGURES[target.figure][0]} {shown} |")
    for limit in LIMITS:
        name, ours = newest(results, lambda result: result["medians"].get(limit.row, {}).get(limit.ours, {}).get(limit.figure))
        shown = "not measured" if name is None else _verdict(ours <= limit.most, name, rounds[name])
        lines.append(f"| `{named(limit)}` | {FIGURES[limit.figure][0]} | {number(limit.most)} at most | "
                     f"{'' if ours is None else number(ours)} | | | {shown} |")
    return lines


def _stands(target, by):
    """The columns of one target by one result, and whether it is reached; none where that has not both sides, or not all peers that
    are the best somewhere."""
    if target.against == BEST and not set(BEST_AMONG) <= set(by):
        return None
    name = best_peer(target.figure, by)[0] if target.against == BEST else target.against
    ours, theirs = (by.get(each, {}).get(target.figure) for each in (target.ours, name))
    if ours is None or theirs is None or (ahead := ratio(target.figure, ours, theirs)) is None:
        return None
    wanted = f"{target.at_least:.2f} of {name}" + (", the best peer" if target.against == BEST else "")
    return f"| {wanted} | {number(ours)} | {number(theirs)} | {ahead:.2f} |", ahead >= target.at_least


def _verdict(is_reached, result, rounds):
    of = "" if rounds is None else f", {rounds} round{'s' if rounds > 1 else ''}"
    return f"{'reached' if is_reached else '**missed**'}, {result}{of}"


def kept(results, chosen):
    """Lines of text: the chosen rows of `results` (name and content, newest first), each after what its run stated of itself."""
    lines = []
    for name, run in results:
        medians = {row: by for row, by in run["medians"].items() if row in chosen}
        if not medians:
            continue
        shown = {group: names for group, names in run["contenders"].items() if any(row.name in medians for row in SETS[group])}
        lines += ["", f"{name}: {conditions(run['machine'], run['rounds'], run['seconds'], run['mtu'])}", versions(run["versions"])]
        for group in shown:
            for contender, by_stage in run["commands"].get(group, {}).items():
                lines += [f"  {contender}, {group} {stage}: {'; '.join(commands)}" for stage, commands in by_stage.items()]
        lines += table(medians, {group: list(names) for group, names in shown.items()})
    return lines[1:]


def conditions(machine, rounds, seconds, mtu):
    """The machine and the conditions of a run in one line."""
    return (f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, kernel {machine['kernel']}; "
            f"{rounds} round{'s' if rounds > 1 else ''}, {seconds} s a cell, MTU {mtu}")


def versions(found):
    """The versions of programs in one line."""
    return "; ".join(f"{name} {version}" for name, version in found.items())


def comparable(now, before):
    """Whether two runs had the same conditions, stage by stage: the rows that can be compared."""
    same_mtu = now["mtu"] == before.get("mtu")
    same_delay = now["delay_round_trip_ms"] == before.get("delay_round_trip_ms")
    same_warm_up = now["warm_up_s"] == before.get("warm_up_s")

    def had_load(row):
        """Many connections were once made by other programs, which did not say what they cost themselves."""
        return not row.is_connection_load or any("load_cpu_us" in figures for figures in before["medians"].get(row.name, {}).values())
    return {row.name for table in SETS.values() for row in table
            if same_mtu and (same_delay or row.stage != "delay") and (same_warm_up or not row.is_warmed) and had_load(row)}


def moved(now, results):
    """Lines of text: figures whose ratio to the best peer, or to a reference, moved since the newest of `results` (name and content,
    newest first) that had the row under the same conditions, with a contender that both have."""
    known = [(name, (comparable(now, before), {each["metric"]: each for each in rows(before["medians"])})) for name, before in results]
    lines, compared, every = [], [], []
    for each in now["rows"]:
        row = each["metric"].split(".")[0]

        def common(before):
            fair, old = before
            was = old.get(each["metric"]) if row in fair else None
            against, ahead, ahead_then = _common(each, was) if was else (None, None, None)
            return (was, against, ahead, ahead_then) if ahead is not None and ahead_then else None
        name, found = newest(known, common)
        if each["best_peer_name"] or each["references"]:
            every.append(row)
        if name is None:
            continue
        was, against, ahead, ahead_then = found
        compared.append(row)
        change = ahead / ahead_then - 1
        if abs(change) > NOISE_BETWEEN_RUNS:
            lines.append(f"  {each['metric']:38} {number(was['ours']):>9} {number(each['ours']):>9}"
                         f"  {ahead_then:7.2f} {ahead:7.2f} {change:+7.0%}  of {against}, since {name}")
    if compared:
        head = f"Since the newest committed result of each row, {len(lines) or 'none'} of {len(compared)} figures moved by more than {NOISE_BETWEEN_RUNS:.0%}"
        lines = ["", f"{head} (ours then and now; ahead then and now):" if lines else f"{head}.", *lines]
    if without := [row for row in dict.fromkeys(every) if row not in compared]:
        lines += ["", f"No committed result has these under the same conditions, beside a contender of this run: {', '.join(without)}."]
    return lines


def _common(now, then):
    """The contender that both runs compare with, and how far ahead we are and were: the same best peer, else a reference."""
    if now["best_peer_name"] and now["best_peer_name"] == then["best_peer_name"]:
        return now["best_peer_name"], now["ratio_to_best_peer"], then["ratio_to_best_peer"]
    for name, reference in now["references"].items():
        if name in then["references"]:
            return name, reference["ratio"], then["references"][name]["ratio"]
    if now["best_peer_name"] and then["best_peer_name"]:
        return "the best peer", now["ratio_to_best_peer"], then["ratio_to_best_peer"]
    return None, None, None
