//! `sallyport prefixes` on files.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{Home, text};

/// A file of the made sample.
fn sample(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/prefixes/tests/data");
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_report_counts_draws_and_values_a_holding() {
    let home = Home::new();
    let picture = home.dir.path().join("holdings.svg");
    let files = ["ip-ranges.json", "rdap-arin.json", "rdap-ripencc.json", "rdap-apnic.json"].map(sample);
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let options = ["--price", "25", "--picture", picture.to_str().unwrap(), "--title", "A sample"];
    let words = [&["prefixes", "report"], files.as_slice(), &options].concat();
    let report = home.json(&words);
    assert_eq!(report["ipv4"]["held"], 100_750_168, "{report}");
    assert_eq!(report["ipv4"]["used"]["outside"], 47_750_168);
    assert_eq!(report["value"], 2_518_754_200.0);
    assert_eq!(report["files"][0]["kind"], "cloud");
    let drawing = fs::read_to_string(&picture).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("A sample") && drawing.contains("IPv6: 3fff::/"));
    let table = text(&home.run(&words).stdout);
    for line in ["IPv4 addresses", "53000000 (52.6 %)", "2518754200.00", "/16     182"] {
        assert!(table.contains(line), "{line:?} in\n{table}");
    }
}

#[test]
fn prefixes_that_are_held_and_not_announced_are_listed_and_two_dates_compared() {
    let home = Home::new();
    let file = |name: &str, content: &str| {
        let path = home.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let old = file("old.txt", "192.0.2.0/24\n198.51.100.0/24\n");
    let new = file("new.json", r#"{"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}, {"ipv6Prefix": "2001:db8::/48"}]}"#);
    let announced = file("table.txt", "192.0.2.0/25\n");
    let listed = home.run(&["prefixes", "ls", &old, "--without", &announced]);
    assert_eq!(text(&listed.stdout), "192.0.2.128/25\n198.51.100.0/24\n");
    assert_eq!(
        home.json(&["prefixes", "report", &old, "--announced", &announced])["ipv4"]["announced"]["outside"],
        384
    );
    let changed = home.json(&["prefixes", "diff", &old, &new]);
    assert_eq!(changed["ipv4"]["removed_prefixes"][0], "198.51.100.0/24", "{changed}");
    let table = text(&home.run(&["prefixes", "diff", &old, &new, "--price", "30"]).stdout);
    for line in ["+ 2001:db8::/48", "- 198.51.100.0/24", "Value of the change: -7680.00"] {
        assert!(table.contains(line), "{line:?} in\n{table}");
    }
    let same = text(&home.run(&["prefixes", "diff", &old, &old]).stdout);
    assert!(same.contains("nothing changed"), "{same}");
}

#[test]
fn wrong_files_of_prefixes_are_refused_in_one_sentence() {
    let home = Home::new();
    let path = home.dir.path().join("list.txt");
    let file = path.to_str().unwrap();
    fs::write(&path, "192.0.2.0/24\n192.0.2.1/24\n").unwrap();
    for (words, code, says) in [
        (&["report", file][..], 5, "list.txt: line 2: \"192.0.2.1/24\" has bits behind its length"),
        (&["report", file, "--mask"], 0, ""),
        (&["report", "/nonexistent/a.json"], 2, "there is no file /nonexistent/a.json"),
        (&["report", file, "--mask", "--price", "cheap"], 2, "no price of one address"),
        (&["report", file, "--mask", "--picture", "/nonexistent/a.svg"], 1, "cannot write /nonexistent/a.svg"),
        (&["report", file, "--title", "x"], 2, "--picture"),
        (&["report"], 2, "FILE"),
        (&["diff", file], 2, "NEW"),
        (&["ls", "-", "--without", "-"], 2, "only once"),
    ] {
        let output = home.run(&[&["prefixes"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

#[test]
fn the_standard_input_is_a_file_too() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sallyport"))
        .args(["prefixes", "ls", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"192.0.2.128/25\n192.0.2.0/25\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "192.0.2.0/24\n");
}
