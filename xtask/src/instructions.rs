//! `cargo xtask instructions`: compares the instruction counts of hot paths with the accepted ones.
//!
//! Times depend on the machine and its load; counts by callgrind do not. Two programs are counted: `bench/instructions`
//! runs pieces of core/, with optimization. The tests of app/edge with names that begin with `instructions::` run in
//! the usual build of tests. See docs/adr/0013-instruction-counts.md.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// The accepted counts.
const ACCEPTED: &str = "bench/instructions/counts.json";
/// The allowed growth over the accepted count, in percent.
const MAX_GROWTH_PERCENT: u64 = 5;
/// The counted functions of both programs, as a pattern for callgrind.
const COUNTED: &str = "*instructions*counted*";
/// The module of app/edge's counted tests.
const EDGE_TESTS: &str = "instructions::";
/// How often a case is counted again: to accept it, and if it is above its bound. Chance only adds instructions, so the
/// lowest count stands.
const AGAIN_TO_ACCEPT: usize = 2;
const AGAIN_WHERE_ABOVE: usize = 4;

/// The content of the file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    /// The compiler: another one makes other instructions.
    toolchain: String,
    /// Instructions for one round of each case.
    cases: BTreeMap<String, u64>,
}

/// One case, and how to run it.
struct Case {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
}

/// What to count, and whether to accept it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Write the counts instead of comparing them.
    pub(crate) accept: bool,
    /// Count only core/, which builds in seconds.
    pub(crate) core_only: bool,
}

/// Counts, and compares or accepts.
pub(crate) fn run(root: &Path, options: Options) -> Result<()> {
    let toolchain = output_of(Command::new("rustc").arg("--version"))?;
    let accepted = read(root)?;
    if let Some(reason) = why_not(&toolchain, &accepted, options) {
        ensure!(std::env::var_os("CI").is_none(), "instructions: {reason}; in CI they must be counted");
        println!("instructions: skipped: {reason}");
        return Ok(());
    }
    let mut cases = core_cases(root)?;
    if !options.core_only {
        cases.extend(edge_cases(root)?);
    }
    let mut counted = Counts { toolchain, cases: count_all(&cases)? };
    let again = if options.accept { AGAIN_TO_ACCEPT } else { AGAIN_WHERE_ABOVE };
    for _ in 0..again {
        let is_recounted = |case: &&Case| {
            case.name.starts_with("edge_") && (options.accept || is_above(&accepted, &counted, &case.name))
        };
        let recounted: Vec<&Case> = cases.iter().filter(is_recounted).collect();
        for (name, count) in count_all(&recounted)? {
            counted.cases.entry(name).and_modify(|lowest| *lowest = count.min(*lowest));
        }
    }
    if options.accept {
        let mut kept = counted;
        if options.core_only && accepted.toolchain == kept.toolchain {
            let edge = accepted.cases.into_iter().filter(|(name, _)| name.starts_with("edge_"));
            kept.cases.extend(edge);
        }
        let mut text = serde_json::to_string_pretty(&kept)?;
        text.push('\n');
        fs::write(root.join(ACCEPTED), text).with_context(|| format!("writing {ACCEPTED}"))?;
        println!("instructions: {} counts accepted in {ACCEPTED}", kept.cases.len());
        return Ok(());
    }
    let (table, findings) = compare(&accepted, &counted, options.core_only);
    print!("{table}");
    let passed =
        format!("{} counts, none more than {MAX_GROWTH_PERCENT} % above what was accepted", counted.cases.len());
    crate::report("instructions", &passed, &findings)
}

fn read(root: &Path) -> Result<Counts> {
    let path = root.join(ACCEPTED);
    if !path.exists() {
        return Ok(Counts::default());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("reading {ACCEPTED}"))?;
    serde_json::from_str(&text).with_context(|| format!("{ACCEPTED} is not as `make instructions-accept` writes it"))
}

/// Why counting is not possible here; `None` if it is.
fn why_not(toolchain: &str, accepted: &Counts, options: Options) -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the accepted counts are those of Linux on x86-64".to_owned());
    }
    if output_of(Command::new("valgrind").arg("--version")).is_err() {
        return Some("valgrind is not there (scripts/need valgrind installs it)".to_owned());
    }
    (!options.accept && accepted.toolchain != toolchain).then(|| {
        format!(
            "the counts in {ACCEPTED} were made by {:?}, and this is {toolchain:?}; `make instructions-accept` makes \
             new ones",
            accepted.toolchain
        )
    })
}

/// The output of the command, without the line end.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::null()).output().with_context(|| format!("{command:?} did not start"))?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn core_cases(root: &Path) -> Result<Vec<Case>> {
    let arguments = ["build", "--profile", "instructions", "--package", "sallyport-instructions"];
    let program = build(root, &arguments, "sallyport-instructions")?;
    let names = output_of(&mut Command::new(&program))?;
    let case = |name: &str| Case { name: name.to_owned(), program: program.clone(), arguments: vec![name.to_owned()] };
    Ok(names.lines().map(case).collect())
}

fn edge_cases(root: &Path) -> Result<Vec<Case>> {
    // The whole workspace, as `make test` builds it: with the same features, nothing is built twice.
    let program = build(root, &["test", "--workspace", "--no-run"], "app/edge")?;
    let list = output_of(Command::new(&program).args([EDGE_TESTS, "--ignored", "--list"]))?;
    let tests: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    ensure!(!tests.is_empty(), "app/edge has no tests in {EDGE_TESTS}");
    let case = |test: &&str| Case {
        name: format!("edge_{}", test.trim_start_matches(EDGE_TESTS)),
        program: program.clone(),
        arguments: vec![(*test).to_owned(), "--exact".to_owned(), "--ignored".to_owned(), "--nocapture".to_owned()],
    };
    Ok(tests.iter().map(case).collect())
}

/// Builds, and returns the program of this package (by name), or of the tests in this folder.
fn build(root: &Path, arguments: &[&str], of: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--locked", "--quiet", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo did not start")?;
    ensure!(output.status.success(), "cargo {} failed", arguments.join(" "));
    program_of(&String::from_utf8_lossy(&output.stdout), root, of)
}

/// The needed part of cargo's messages.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

fn program_of(messages: &str, root: &Path, of: &str) -> Result<PathBuf> {
    let is_it = |artifact: &Artifact| {
        artifact.target.name == of
            || (artifact.target.kind == ["test"] && artifact.manifest_path == root.join(of).join("Cargo.toml"))
    };
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    artifacts
        .filter(is_it)
        .find_map(|artifact| artifact.executable)
        .with_context(|| format!("cargo made no program of {of}"))
}

/// Counts every case, as many at a time as there are processors.
fn count_all(cases: &[impl Borrow<Case> + Sync]) -> Result<BTreeMap<String, u64>> {
    let folder = std::env::temp_dir().join(format!("sallyport-instructions-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)).map(Borrow::borrow) {
                    let count = count(case, &folder.join(&case.name));
                    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    counts.push(count.map(|count| (case.name.clone(), count)));
                }
            });
        }
    });
    let _ = fs::remove_dir_all(&folder);
    counts.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// The instructions of one round.
fn count(case: &Case, out: &Path) -> Result<u64> {
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        // Fair scheduling, so that threads that wait for each other make progress.
        .arg("--fair-sched=yes")
        .arg(&case.program)
        .args(&case.arguments)
        .output()
        .context("valgrind did not start")?;
    let (output_text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{} failed under valgrind:\n{output_text}{errors}", case.name);
    }
    let profile = fs::read_to_string(out).with_context(|| format!("what callgrind counted of {}", case.name))?;
    let rounds =
        rounds_of(&output_text).with_context(|| format!("{} does not say how many rounds it did", case.name))?;
    let total = total_of(&profile).with_context(|| format!("callgrind counted nothing of {}", case.name))?;
    Ok(total / rounds)
}

/// The number in the line `rounds N`.
fn rounds_of(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("rounds ")?.parse().ok()).filter(|rounds| *rounds > 0)
}

/// The instructions of a whole profile; `None` if there are none.
fn total_of(profile: &str) -> Option<u64> {
    let line = profile.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")))?;
    line.split(' ').next()?.parse().ok().filter(|total| *total > 0)
}

/// Whether the case is above its bound.
fn is_above(accepted: &Counts, counted: &Counts, name: &str) -> bool {
    let counts = (accepted.cases.get(name), counted.cases.get(name));
    matches!(counts, (Some(before), Some(now)) if now * 100 > before * (100 + MAX_GROWTH_PERCENT))
}

/// A table of all cases, and the failures.
fn compare(accepted: &Counts, counted: &Counts, core_only: bool) -> (String, Vec<String>) {
    let (mut table, mut findings) = (String::new(), Vec::new());
    for (name, &now) in &counted.cases {
        let Some(&before) = accepted.cases.get(name) else {
            table += &format!("  {name:32} {now:>10}        new\n");
            findings
                .push(format!("{name}: {now} instructions, and no count was accepted; run `make instructions-accept`"));
            continue;
        };
        let percent = (now as f64 / before as f64 - 1.0) * 100.0;
        table += &format!("  {name:32} {now:>10} {percent:>+8.1} %\n");
        if is_above(accepted, counted, name) {
            findings.push(format!(
                "{name}: {now} instructions, {percent:.1} % more than the {before} that were accepted; make it \
                 cheaper, or, where it is worth that, run `make instructions-accept`"
            ));
        } else if now * 100 < before * (100 - MAX_GROWTH_PERCENT) {
            table += "    cheaper than before: `make instructions-accept` keeps it so\n";
        }
    }
    let is_gone = |name: &&String| !(counted.cases.contains_key(*name) || core_only && name.starts_with("edge_"));
    for name in accepted.cases.keys().filter(is_gone) {
        findings.push(format!("{name}: it has a count and is not there any more; run `make instructions-accept`"));
    }
    (table, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cases: &[(&str, u64)]) -> Counts {
        let cases = cases.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counts { toolchain: "rustc 1".to_owned(), cases }
    }

    #[test]
    fn what_grows_by_more_than_five_percent_fails() {
        let accepted = counts(&[("same", 1_000), ("little", 1_000), ("much", 1_000), ("less", 1_000)]);
        let now = counts(&[("same", 1_000), ("little", 1_050), ("much", 1_051), ("less", 500)]);
        let (table, findings) = compare(&accepted, &now, false);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("much: 1051 instructions, 5.1 % more than the 1000"), "{findings:?}");
        assert!(table.contains("cheaper than before"), "{table}");
    }

    #[test]
    fn cases_that_come_and_go_fail_until_they_are_accepted() {
        let (_, findings) = compare(&counts(&[("gone", 7), ("edge_gone", 7)]), &counts(&[("new", 7)]), false);
        assert_eq!(findings.len(), 3, "{findings:?}");
        let (_, findings) = compare(&counts(&[("edge_gone", 7)]), &counts(&[]), true);
        assert_eq!(findings, Vec::<String>::new(), "the edge was not counted");
    }

    #[test]
    fn the_total_and_the_rounds_are_read() {
        assert_eq!(total_of("version: 1\nevents: Ir\nfn=(1) f\n2 3\n\ntotals: 1234567\n"), Some(1_234_567));
        assert_eq!(total_of("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(total_of("events: Ir\nsummary: 0\n"), None, "nothing was counted");
        assert_eq!(rounds_of("running 1 test\nrounds 200\ntest x ... ok\n"), Some(200));
        assert_eq!(rounds_of("rounds 0\n"), None);
    }

    #[test]
    fn the_program_is_that_of_the_package_or_of_the_folders_tests() {
        let line = |name: &str, kind: &str, folder: &str| {
            format!(
                concat!(
                    r#"{{"reason":"compiler-artifact","manifest_path":"/w/{folder}/Cargo.toml","#,
                    r#""target":{{"name":"{name}","kind":["{kind}"]}},"executable":"/t/{folder}/{name}"}}"#
                ),
                folder = folder,
                name = name,
                kind = kind
            )
        };
        let messages = [
            r#"{"reason":"build-finished"}"#.to_owned(),
            line("it", "test", "io/net"),
            line("sallyport_edge", "lib", "app/edge"),
            line("it", "test", "app/edge"),
            line("sallyport-instructions", "bin", "bench/instructions"),
        ]
        .join("\n");
        let root = Path::new("/w");
        assert_eq!(program_of(&messages, root, "app/edge").unwrap(), Path::new("/t/app/edge/it"));
        let program = program_of(&messages, root, "sallyport-instructions").unwrap();
        assert_eq!(program, Path::new("/t/bench/instructions/sallyport-instructions"));
        assert!(program_of(&messages, root, "app/control").is_err());
    }
}
