//! `lab measure`: bad inputs, real quick runs, and what is left after a signal.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use crate::{run, text};

/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        println!("skipped: network namespaces need root");
    }
    is_root
}

/// Runs `lab measure`.
fn measure(args: &[&str]) -> std::process::Output {
    run(Path::new("/nonexistent"), &[&["measure"], args].concat())
}

/// The verdicts of a report with these words in their sentence.
fn verdicts<'a>(report: &'a Value, words: &str) -> Vec<&'a Value> {
    let all = report["verdicts"].as_array().unwrap();
    let found: Vec<_> = all.iter().filter(|verdict| verdict["sentence"].as_str().unwrap().contains(words)).collect();
    assert!(!found.is_empty(), "{words}: {report}");
    found
}

#[test]
fn measurements_are_listed_with_their_articles() {
    let list = measure(&["--list"]);
    let printed = text(&list.stdout);
    assert!(list.status.success() && printed.contains("congestion") && printed.contains("BBR (2020)"), "{printed}");
    let list: Value = serde_json::from_slice(&measure(&["--list", "-o", "json"]).stdout).unwrap();
    assert!(list.as_array().unwrap().iter().any(|entry| entry["name"] == "ping"), "{list}");
}

#[test]
fn wrong_options_are_refused_before_anything_is_measured() {
    for (args, code, words) in [
        (&["congestoin"][..], 2, "'congestion'"),
        (&[], 2, "required"),
        (&["ping", "--all"], 2, "cannot be used with"),
        (&["--all", "--svg", "all.svg"], 2, "cannot be used with"),
        (&["ping", "--json", "/nonexistent/report.json"], 1, "cannot write /nonexistent/report.json: No such file"),
        (&["ping", "--html", "/"], 1, "cannot write /: Is a directory"),
    ] {
        let wrong = measure(args);
        let printed = text(&wrong.stderr);
        assert!(wrong.status.code() == Some(code) && printed.contains(words), "{args:?}: {printed}");
        assert!(!printed.contains("round 1"), "{args:?}: {printed}");
    }
}

#[test]
fn others_than_root_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sallyport-lab");
    fs::copy(env!("CARGO_BIN_EXE_sallyport-lab"), &program).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let measure = |name: &str| {
        let mut command = Command::new(&program);
        command.args(["measure", name, "--quick"]).current_dir("/");
        if geteuid().is_root() {
            command.uid(65_534);
        }
        command.output().unwrap()
    };
    let allowed = measure("prefixes");
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    let refused = measure("ping");
    let printed = text(&refused.stderr);
    assert!(!refused.status.success() && printed.contains("only root can make network namespaces"), "{printed}");
    assert!(printed.contains("run it with sudo"), "{printed}");
}

/// Runs `lab measure` with only these programs on the path.
fn measure_with(programs: &[&str], args: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    for program in programs {
        let found = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(|folder| Path::new(folder).join(program));
        let found = found.into_iter().find(|file| file.exists()).unwrap_or_else(|| panic!("{program} is needed"));
        symlink(found, folder.path().join(program)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-lab"));
    command.env("PATH", folder.path()).arg("measure").args(args).output().unwrap()
}

#[test]
fn a_missing_tool_is_named_and_what_does_not_need_it_runs() {
    if !is_root() {
        return;
    }
    let none = measure_with(&[], &["ping", "--quick"]);
    let printed = text(&none.stderr);
    assert!(!none.status.success() && printed.contains("ip is not there: `apt-get install iproute2`"), "{printed}");
    let without = measure_with(&["ip", "setpriv"], &["ping", "--quick", "-o", "json"]);
    let reports: Value = serde_json::from_slice(&without.stdout).unwrap();
    let rows = reports[0]["rows"].as_array().unwrap();
    let has_figures = |row: &Value| !row["figures"].as_array().unwrap().is_empty();
    for row in rows {
        let is_classic = row["variant"].as_str().unwrap().starts_with("classic");
        assert_eq!(has_figures(row), !is_classic, "{row}");
        let missing = "ping is not there: `apt-get install iputils-ping` installs it";
        assert_eq!(row["missing"].as_str(), is_classic.then_some(missing), "{row}");
    }
    assert_eq!(verdicts(&reports[0], "the classic tool is right")[0]["outcome"], "not-judged", "{reports}");
}

#[test]
fn the_classic_ping_is_fooled_and_ours_is_not() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let files = [file("ping.json"), file("ping.svg"), file("ping.html")];
    let done = measure(&["ping", "--quick", "--json", &files[0], "--svg", &files[1], "--html", &files[2]]);
    let printed = text(&done.stdout);
    assert!(printed.contains("repeats \"ping\"") && printed.contains("classic, truncated"), "{printed}");
    let [json, svg, html] = files.map(|file| fs::read_to_string(file).unwrap());
    let reports: Value = serde_json::from_str(&json).unwrap();
    let report = &reports[0];
    // What is left out depends on how busy the machine is.
    for words in ["ours believes", "makes any round trip", "the classic tool believes"] {
        for verdict in verdicts(report, words) {
            assert_eq!(verdict["outcome"], "pass", "{verdict} {report}");
        }
    }
    assert!(report["machine"]["versions"].as_array().unwrap().len() == 2, "{report}");
    assert!(svg.starts_with("<svg ") && svg.contains("classic, truncated"), "{svg}");
    assert!(html.starts_with("<!doctype html>") && html.contains(&svg), "{html}");
}

#[test]
fn bbr_carries_more_than_cubic_over_losses() {
    if !is_root() {
        return;
    }
    let done = measure(&["congestion", "--quick", "-o", "json"]);
    let reports: Value = serde_json::from_slice(&done.stdout).unwrap();
    let report = &reports[0];
    assert_eq!((report["rounds"].as_u64(), report["rows"].as_array().unwrap().len()), (Some(1), 8), "{report}");
    let verdict = verdicts(report, "BBR carries many times")[0];
    match verdict["outcome"].as_str().unwrap() {
        "not-judged" => {
            let rows = report["rows"].to_string();
            assert!(rows.contains("the congestion control bbr is not there"), "{rows}");
            println!("skipped: this kernel has no BBR");
        }
        _ => assert!(verdict["ratio"].as_f64().unwrap() > 2.0, "{report}"),
    }
}

/// The only report of a run, and its rows with figures, by the name of the variant.
fn figures(output: &std::process::Output) -> (Value, Vec<(String, Vec<f64>)>) {
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let figures = |row: &Value| {
        let medians: Vec<_> =
            row["figures"].as_array().unwrap().iter().map(|spread| spread["median"].as_f64().unwrap()).collect();
        (!medians.is_empty()).then(|| (row["variant"].as_str().unwrap().to_owned(), medians))
    };
    let rows = reports[0]["rows"].as_array().unwrap().iter().filter_map(figures).collect();
    (reports[0].clone(), rows)
}

/// What the rows without figures say, by the name of the variant.
fn missing(report: &Value) -> Vec<(&str, &str)> {
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter_map(|row| Some((row["variant"].as_str()?, row["missing"].as_str()?))).collect()
}

#[test]
fn all_ways_to_match_hashes_find_the_same() {
    let (report, rows) = figures(&measure(&["match", "--quick", "-o", "json"]));
    for (variant, figures) in &rows {
        let [_, queries, same, near] = figures[..] else { panic!("{report}") };
        assert!(same == queries && near > 0.0, "{variant}: {report}");
    }
    assert!(rows.iter().any(|(variant, _)| variant == "naive"), "{report}");
    for (variant, why) in missing(&report) {
        assert_eq!(why, format!("\"{variant}\" is not there: use a processor that has these instructions"));
        println!("skipped: {why}");
    }
}

#[test]
fn addresses_of_the_sample_are_counted_once() {
    let (report, rows) = figures(&measure(&["prefixes", "--quick", "-o", "json"]));
    let addresses: Vec<_> = rows.iter().map(|(_, figures)| figures[0]).collect();
    let [added_up, once, one_bit, in_use] = addresses[..] else { panic!("{report}") };
    assert!(once == one_bit && added_up > once && in_use < once, "{report}");
    assert!(report["verdicts"].as_array().unwrap().iter().all(|verdict| verdict["outcome"] == "pass"), "{report}");
}

#[test]
fn many_rules_are_compared_as_a_flat_list_a_set_and_a_policy() {
    if !is_root() {
        return;
    }
    let (report, rows) = figures(&measure(&["calico", "--quick", "-o", "json"]));
    assert_eq!(rows.len(), 7, "{report}");
    let ratio = verdicts(&report, "less than a flat list")[0]["ratio"].as_f64().unwrap();
    assert!(ratio > 0.0, "{report}");
    let (report, rows) = figures(&measure_with(&["ip"], &["calico", "--quick", "-o", "json"]));
    assert_eq!(rows.iter().map(|(variant, _)| variant.as_str()).collect::<Vec<_>>(), ["no rules"]);
    assert!(missing(&report).iter().all(|(_, why)| why.starts_with("nft is not there: `apt-get install")), "{report}");
}

#[test]
fn a_connection_is_carried_by_each_path_with_and_without_offloads() {
    if !is_root() {
        return;
    }
    for (name, variants) in [("paths", 8), ("tap", 4)] {
        let (report, rows) = figures(&measure(&[name, "--quick", "-o", "json"]));
        assert_eq!(rows.len(), variants, "{report}");
        assert!(rows.iter().all(|(_, figures)| figures[0] > 0.0), "{report}");
    }
}

/// Whether the packet path is there, and the machine is not too busy for it; if not, the measurement of packets says so.
fn has_packet_path(report: &Value) -> bool {
    let lacks = [
        "sallyport-packet is not there",
        "the packet path in sallyport-packet is not there",
        "came through, time and again",
    ];
    let why = missing(report).into_iter().map(|(_, why)| why).find(|why| lacks.iter().any(|lack| why.contains(lack)));
    if let Some(why) = why {
        println!("skipped: {why}");
    }
    why.is_none()
}

#[test]
fn the_router_in_xdp_forwards_what_the_kernel_forwards() {
    if !is_root() {
        return;
    }
    let (report, rows) = figures(&measure(&["xdp", "--quick", "-o", "json"]));
    if has_packet_path(&report) {
        assert_eq!(rows.len(), 3, "{report}");
        assert!(rows.iter().all(|(_, figures)| figures[0] > 0.0), "{report}");
    }
}

#[test]
fn without_iptables_the_kernel_still_forwards_by_the_other_ways() {
    if !is_root() {
        return;
    }
    let programs = ["ip", "ethtool", "nft", "setpriv"];
    let (report, rows) = figures(&measure_with(&programs, &["forward", "--quick", "-o", "json"]));
    if has_packet_path(&report) {
        assert_eq!(rows.len(), 3, "{report}");
        let [(variant, why)] = missing(&report)[..] else { panic!("{report}") };
        assert_eq!(variant, "SNAT by iptables, 10,000 flows");
        assert_eq!(why, "iptables is not there: `apt-get install iptables` installs it");
    }
}

#[test]
fn the_generator_sends_a_mix_of_sizes_and_by_both_engines() {
    if !is_root() {
        return;
    }
    let (report, rows) = figures(&measure(&["generate", "--quick", "-o", "json"]));
    if has_packet_path(&report) {
        assert_eq!(rows.len(), 5, "{report}");
        assert!(rows.iter().all(|(_, figures)| figures[3] > 0.0), "{report}");
    }
}

#[test]
fn two_measurements_at_once_do_not_meet() {
    if !is_root() {
        return;
    }
    // Both have devices, addresses and a table of the same names.
    let measured = || figures(&measure(&["calico", "--quick", "-o", "json"]));
    let reports = thread::scope(|scope| {
        let both = [scope.spawn(measured), scope.spawn(measured)];
        both.map(|one| one.join().unwrap())
    });
    for (report, rows) in reports {
        assert_eq!(rows.len(), 7, "{report}");
    }
}

/// The processes with this word in their environment.
fn processes_with(mark: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    all.filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| text(&bytes).contains(mark))).collect()
}

#[test]
fn nothing_is_left_after_a_signal() {
    if !is_root() {
        return;
    }
    for name in ["congestion", "ping", "xdp"] {
        let mark = format!("SALLYPORT_MARK={}-{name}", std::process::id());
        let (key, value) = mark.split_once('=').unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-lab"));
        let mut child = command
            .args(["measure", name])
            .env(key, value)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("round 1")), "{name} began");
        assert!(!processes_with(&mark).is_empty());
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        let began = Instant::now();
        while !processes_with(&mark).is_empty() {
            assert!(began.elapsed() < PATIENCE, "{name} left {:?}", processes_with(&mark));
            thread::sleep(Duration::from_millis(20));
        }
    }
}
