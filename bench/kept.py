"""The results that are kept: of each row the newest figures, with what the run that measured them stated of itself.

`results/RELEASE/SET.json` is one minified file for each release and set of rows. Its `runs` have the statements of runs by their
names: start, machine, versions, conditions, contenders, commands. Its `rows` have, for each row, the newest result first: the
name of its `run`, the `medians` by contender, and every sample. A run replaces what older runs of the same release say of the
same contenders in its rows. An older result of a row stays as long as it has a contender that no newer one has.
"""

import glob
import json
import os
import subprocess

import plot
from report import US
from rows import SETS

#: What a run states of itself for all sets alike.
STATED = ("started", "machine", "versions", "rounds", "seconds", "mtu", "warm_up_s", "delay_round_trip_ms")
#: What it states for each set.
STATED_OF_SET = ("contenders", "commands")


def name(run):
    """The run's name: its start in UTC, as in 2026-11-24T133230Z."""
    return run["started"].split(".")[0].split("+")[0].replace(":", "") + "Z"


def release(run):
    """The release of Sallyport that the run measured, as in 0.1.0."""
    return run["versions"]["sallyport"].split()[-1]


def parts(run):
    """{set: the file's content, had this run been the only one}; rows without Sallyport compare nothing, and are left out."""
    found = {}
    for group, table in SETS.items():
        measured = [row.name for row in table if US in run["medians"].get(row.name, {})]
        if not measured:
            continue
        statement = {key: run[key] for key in STATED if key in run} | {key: run[key].get(group, {}) for key in STATED_OF_SET}
        unstarted = [sample for sample in run["samples"] if sample["row"].startswith(f"{group} ")]
        if unstarted:
            statement["unstarted"] = unstarted
        found[group] = {"runs": {name(run): statement}, "rows": {row: [_result(run, row)] for row in measured}}
    return found


def _result(run, row):
    samples = [{key: value for key, value in sample.items() if key != "row"} for sample in run["samples"] if sample["row"] == row]
    return {"run": name(run), "medians": run["medians"][row], "samples": samples}


def merged(older, newer):
    """The content of a file with what a newer run has of its set."""
    runs, rows = older["runs"] | newer["runs"], dict(older["rows"])
    for row, results in newer["rows"].items():
        every = sorted(results + rows.get(row, []), key=lambda result: result["run"], reverse=True)
        rows[row], known = [], set()
        for result in every:
            # Other MTUs are other conditions, which replace nothing.
            compared = {(runs[result["run"]]["mtu"], contender) for contender in result["medians"]}
            if not compared <= known:
                rows[row].append(result)
                known |= compared
    used = {result["run"] for results in rows.values() for result in results}
    return {"runs": {run: runs[run] for run in sorted(used)}, "rows": rows}


def keep(folder, run):
    """Writes what the run measured into the files of its release; gives the paths of what was written."""
    made = [folder, f"{folder}/{release(run)}"]
    os.makedirs(made[-1], exist_ok=True)
    for group, part in parts(run).items():
        path = f"{made[1]}/{group}.json"
        if os.path.exists(path):
            with open(path) as file:
                part = merged(json.load(file), part)
        made.append(path)
        _write(path, json.dumps(part, separators=(",", ":")) + "\n")
        if group == "growth":
            made.append(f"{made[1]}/growth.svg")
            _write(made[-1], plot.growth(points(part)))
    return made


def _write(path, text):
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def points(part):
    """What grows -> contender -> its points, by the newest result of each row that has them."""
    found = {}
    for row, results in part["rows"].items():
        for result in results:
            for sample in result["samples"]:
                if "points" in sample:
                    found.setdefault(row.removeprefix("growth_"), {}).setdefault(sample["contender"], sample["points"])
    return found


def runs(contents):
    """The runs of all files, the newest first: name, and what it stated, with `medians` of the rows that it is kept for."""
    found = {}
    for content in contents:
        for run, statement in content["runs"].items():
            whole = found.setdefault(run, {key: statement[key] for key in STATED if key in statement}
                                     | {key: {} for key in STATED_OF_SET} | {"medians": {}})
            group = next(group for group, table in SETS.items() if any(row.name in content["rows"] for row in table))
            for key in STATED_OF_SET:
                whole[key][group] = statement[key]
        for row, results in content["rows"].items():
            for result in results:
                found[result["run"]]["medians"][row] = result["medians"]
    return sorted(found.items(), reverse=True)


def here(folder):
    """The runs of the files in this folder."""
    contents = []
    for path in sorted(glob.glob(f"{folder}/*/*.json")):
        with open(path) as file:
            contents.append(json.load(file))
    return runs(contents)


def committed(folder):
    """The same of what is committed; none where nothing is."""
    def git(*words):
        done = subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=folder, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""
    paths = [path for path in git("ls-tree", "-r", "--name-only", "HEAD", ".").splitlines() if path.endswith(".json")]
    return runs([json.loads(git("show", f"HEAD:./{path}")) for path in paths])
