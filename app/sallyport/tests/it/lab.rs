//! The laboratory as a user runs it, and faults in it: real processes killed, paused and cut off, under load.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    harness::{Home, Program, text, wait_until},
    lab_faults as faults,
};

/// How many connections send requests during a fault.
pub(crate) const CONNECTIONS: u64 = 8;
/// How long each request waits for its response if nothing is silent, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(15);

/// A laboratory of a test.
pub(crate) struct Here {
    home: Home,
    dir: tempfile::TempDir,
    name: String,
    /// A `PATH` with nats-server.
    path: String,
    /// The name of the socket that all regions serve, once known.
    pub(crate) host: String,
}

impl Here {
    /// A laboratory whose name begins with this letter, unique among tests; `None` with a message if it cannot be built
    /// here.
    pub(crate) fn new(letter: char) -> Option<Self> {
        let skip = |why: &str| {
            println!("skipped: no laboratory can stand here: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("only root can make network namespaces");
        }
        if !Path::new("/dev/net/tun").exists() {
            return skip("there is no /dev/net/tun");
        }
        let has = |program: &str| Command::new(program).arg("-V").stdout(Stdio::null()).status().is_ok();
        if !has("ip") || !has("setpriv") {
            return skip("ip or setpriv is missing");
        }
        if !Path::new("/usr/lib/postgresql").is_dir() {
            return skip("PostgreSQL is missing");
        }
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tools");
        let found = Command::new(tools).arg("nats-server").stderr(Stdio::inherit()).output().unwrap();
        if !found.status.success() {
            return skip("nats-server cannot be built");
        }
        let nats = PathBuf::from(text(&found.stdout).trim());
        let path = format!("{}:{}", nats.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let dir = tempfile::tempdir().unwrap();
        // PostgreSQL runs as another user, which must reach its files.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        Some(Self {
            home: Home::new(),
            dir,
            name: format!("{letter}{}", std::process::id() % 10_000_000),
            path,
            host: String::new(),
        })
    }

    /// Builds three regions, and finds out the name of their socket. Returns what was printed.
    fn up(&mut self) -> String {
        self.up_with(&["--delay", "5ms"])
    }

    /// As [`Self::up`], with other options.
    pub(crate) fn up_with(&mut self, more: &[&str]) -> String {
        let began = Instant::now();
        let printed = self.done(&[&["up", "--regions", "3"], more].concat());
        self.host = self.json(&["status"])["host"].as_str().unwrap().to_owned();
        println!("the laboratory stands after {:?}", began.elapsed());
        printed
    }

    /// Builds an anycast laboratory, and finds out the name of its socket. Returns what was printed.
    pub(crate) fn up_anycast(&mut self, more: &[&str]) -> String {
        let began = Instant::now();
        let printed = self.done(&[&["up", "--anycast"], more].concat());
        self.host = self.json(&["status"])["host"].as_str().unwrap().to_owned();
        println!("the laboratory stands after {:?}", began.elapsed());
        printed
    }

    /// Takes the laboratory away, and asserts that nothing is left of it.
    pub(crate) fn goes_without_a_trace(&self) {
        let status = self.json(&["status"]);
        let processes = status["processes"].as_array().unwrap();
        let pids: Vec<_> = processes.iter().filter_map(|one| one["pid"].as_i64()).collect();
        assert!(pids.len() >= 14, "{status}");
        self.done(&["down"]);
        let prefix = format!("sallyport-{}-", self.name);
        for folder in ["/run/netns", "/etc/netns"] {
            let left = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        assert!(!self.dir.path().join(&self.name).exists());
        for pid in pids {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(!line.contains(self.dir.path().to_str().unwrap()), "{pid} runs still: {line}");
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(&["lab", "--lab", &self.name, "--dir"]);
        command.arg(self.dir.path()).args(args).env("PATH", &self.path);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let began = Instant::now();
        let output = self.command(args).output().unwrap();
        let took = began.elapsed();
        eprintln!("$ lab {} ({took:?})\n{}{}", args.join(" "), text(&output.stdout), text(&output.stderr));
        output
    }

    pub(crate) fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "lab {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn refused(&self, args: &[&str], code: i32, expected: &str) {
        let output = self.run(args);
        let printed = text(&output.stderr);
        assert!(
            output.status.code() == Some(code) && printed.contains(expected),
            "lab {args:?}: {:?} {printed}",
            output.status
        );
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[args, &["-o", "json"]].concat())).unwrap()
    }

    /// Runs a command of the owner on a node, which must succeed.
    pub(crate) fn owner(&self, node: &str, args: &[&str]) -> Value {
        let printed = self.done(&[&["exec", node, "--", "sallyport"], args, &["-o", "json"]].concat());
        serde_json::from_str(&printed).unwrap_or(Value::Null)
    }

    /// The status and the body's first word that curl gets on a node; `None` without a response.
    pub(crate) fn response(&self, node: &str, url: &str) -> Option<(u16, String)> {
        let args = ["exec", node, "--", "curl", "-sS", "--max-time", "20", "-w", "\n%{http_code}", url];
        let output = self.command(&args).output().unwrap();
        let printed = text(&output.stdout);
        let (body, status) = printed.trim_end().rsplit_once('\n').filter(|_| output.status.success())?;
        Some((status.parse().unwrap(), body.split_whitespace().next().unwrap_or_default().to_owned()))
    }

    /// The status that curl gets on a node; 0 without a response.
    pub(crate) fn status(&self, node: &str, url: &str) -> u16 {
        self.response(node, url).map_or(0, |(status, _)| status)
    }

    /// The URL of the socket that all regions serve.
    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.host)
    }

    /// The output of a program on a node, whatever its status.
    pub(crate) fn output_of(&self, node: &str, program: &[&str]) -> String {
        text(&self.command(&[&["exec", node, "--"], program].concat()).output().unwrap().stdout)
    }

    /// The owner's command output on a node, or `None` if it fails.
    pub(crate) fn asked(&self, node: &str, args: &[&str]) -> Option<Value> {
        let args = [&["exec", node, "--", "sallyport"], args, &["-o", "json"]].concat();
        let output = self.command(&args).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The entry of an edge in `edge ls`.
    pub(crate) fn edge(&self, name: &str) -> Option<Value> {
        let edges = self.asked("us-client", &["edge", "ls"])?;
        edges.as_array()?.iter().find(|edge| edge["name"] == name).cloned()
    }

    /// Waits until all edges are up and every tunnel is held, that of the first region at home.
    pub(crate) fn until_whole(&self) {
        self.done(&["fault", "kill", "eu-connector"]);
        self.done(&["fault", "resume", "eu-connector"]);
        until("all is as before", || {
            let edges = self.asked("us-client", &["edge", "ls"])?;
            let edges = edges.as_array()?;
            let are_up = edges.iter().all(|edge| edge["state"] == "up" && edge["tunnels"].as_u64() >= Some(1));
            (edges.len() == 3 && are_up).then_some(())
        });
        until("the first region's origin is reached at home", || {
            self.response("eu-client", &self.url())
                .is_some_and(|(status, by)| status == 200 && by == "eu-origin")
                .then_some(())
        });
    }

    /// Starts requests from a node to the socket of all regions, until [`Load::end`].
    pub(crate) fn load(&self, from: &str) -> Load {
        self.load_of(from, &self.url(), PATIENCE)
    }

    /// As [`Self::load`], for another URL.
    pub(crate) fn load_of_another(&self, from: &str, url: &str) -> Load {
        self.load_of(from, url, PATIENCE)
    }

    /// As [`Self::load`], with this timeout for each response.
    pub(crate) fn impatient_load(&self, from: &str, patience: Duration) -> Load {
        self.load_of(from, &self.url(), patience)
    }

    fn load_of(&self, from: &str, url: &str, patience: Duration) -> Load {
        let connections = CONNECTIONS.to_string();
        let patience = format!("{}s", patience.as_secs());
        let args = ["load", url, "--from", from, "--seconds", "3600", "--connections", &connections];
        let args = [&args[..], &["--rate", "50", "--patience", &patience, "-o", "json"]].concat();
        let program = Program::start(&mut self.command(&args));
        // All its connections are open by then, on a busy machine too.
        thread::sleep(Duration::from_secs(1));
        Load { program, from: from.to_owned() }
    }

    /// The root certificate of the laboratory.
    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join(&self.name).join("ca.pem")
    }

    /// The state file of an edge.
    fn state_of(&self, edge: &str) -> String {
        let file = self.dir.path().join(&self.name).join(format!("data/{edge}/edge.json"));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// The log of a process.
    pub(crate) fn log(&self, process: &str) -> String {
        let file = self.dir.path().join(&self.name).join(format!("logs/{process}.log"));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// A program on a node, until dropped.
    pub(crate) fn start(&self, node: &str, program: &[&str]) -> Program {
        Program::start(&mut self.command(&[&["exec", node, "--"], program].concat()))
    }

    /// Begins an endless transfer at this rate.
    pub(crate) fn transfer(&self, node: &str, rate: &str) -> Transfer {
        let file = self.dir.path().join(format!("transfer-{node}"));
        let url = format!("{}bytes/100000000000", self.url());
        let program = self.start(node, &["curl", "-sS", "--limit-rate", rate, "-o", file.to_str().unwrap(), &url]);
        let transfer = Transfer { program, file };
        transfer.goes_on();
        transfer
    }
}

/// Requests through faults.
pub(crate) struct Load {
    program: Program,
    from: String,
}

impl Load {
    /// Ends the load. `what` names the fault for messages.
    pub(crate) fn end(self, what: &str) -> Report {
        // Includes the last requests.
        thread::sleep(Duration::from_millis(500));
        self.program.signal("INT");
        assert!(self.program.ended().success(), "{}", self.program.output());
        let report: Value = serde_json::from_str(&self.program.output()).unwrap();
        let count = |name: &str| report[name].as_u64().unwrap();
        let failed = count("requests") - count("ok");
        println!(
            "{what}, asked from {}: {failed} of {} requests failed ({} unreachable, {} cut off, {} late, refused {}), \
             within {} ms; longest without a response {} ms, median {:.1} ms, by {}",
            self.from,
            count("requests"),
            count("unreachable"),
            count("cut"),
            count("late"),
            report["refused"],
            count("failing_ms"),
            count("longest_gap_ms"),
            count("median_us") as f64 / 1e3,
            report["by_origin"],
        );
        assert!(count("ok") >= CONNECTIONS, "{what}: it sent hardly any requests: {report}");
        Report { failed, report, what: what.to_owned() }
    }
}

/// The report of a load.
pub(crate) struct Report {
    failed: u64,
    pub(crate) report: Value,
    what: String,
}

impl Report {
    /// Asserts that no more than this many failed.
    pub(crate) fn at_most(self, bound: u64) -> Self {
        assert!(self.failed <= bound, "{}: {} failed, and {bound} may: {}", self.what, self.failed, self.report);
        self
    }

    /// How many were answered by the origin of this region.
    pub(crate) fn by(&self, region: &str) -> u64 {
        self.report["by_origin"][format!("{region}-origin")].as_u64().unwrap_or_default()
    }
}

/// A running transfer.
pub(crate) struct Transfer {
    program: Program,
    file: PathBuf,
}

impl Transfer {
    /// Waits for further bytes: this very transfer was not cut.
    pub(crate) fn goes_on(&self) {
        let bytes = || std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let had = bytes();
        wait_until("more of the transfer", || {
            assert!(!self.program.has_ended(), "the transfer was cut off: {}", self.program.output());
            (bytes() > had).then_some(())
        });
    }
}

/// Repeats until there is an answer, a few times a second, because each try starts processes.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    wait_until(what, || {
        let response = ask();
        if response.is_none() {
            thread::sleep(Duration::from_millis(150));
        }
        response
    })
}

impl Drop for Here {
    fn drop(&mut self) {
        if thread::panicking() {
            for log in std::fs::read_dir(self.dir.path().join(&self.name).join("logs")).into_iter().flatten().flatten()
            {
                let printed = std::fs::read_to_string(log.path()).unwrap_or_default();
                let lines: Vec<_> = printed.lines().filter(|line| !line.contains("access:")).collect();
                eprintln!("--- {}\n{}", log.path().display(), lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
        self.run(&["down"]);
    }
}

type Part = (&'static str, fn(&Here));

/// Runs the parts of a test in their order, and prints how long each took.
fn run_parts(here: &Here, parts: &[Part]) {
    for (what, part) in parts {
        let began = Instant::now();
        part(here);
        println!("--- {what}: {:?}", began.elapsed());
    }
}

#[test]
fn a_network_of_three_regions_comes_up_breaks_mends_and_goes_without_a_trace() {
    let Some(mut here) = Here::new('a') else { return };
    let printed = here.up();
    assert!(printed.contains("exec ap-client -- curl https://") && printed.contains("fault kill eu-1"), "{printed}");
    here.refused(&["up"], 5, "already exists");
    here.refused(&["exec", "nowhere", "--", "true"], 4, "the laboratory has no \"nowhere\"");
    here.refused(&["fault", "kill", "mars"], 4, "no \"mars\"; it has ap");
    here.refused(&["fault", "kill", "eu-client"], 5, "nothing of the laboratory's own runs on eu-client");
    here.refused(&["fault", "partition", "eu-connector"], 5, "is a process of the node eu-origin");
    here.refused(&["fault", "slow", "eu"], 5, "none was given");
    run_parts(
        &here,
        &[
            ("clients land in their region", clients_land_in_their_region),
            ("links have the configured faults", links_have_the_configured_faults),
            ("a region is cut off", faults::a_region_is_cut_off),
            ("an edge breaks", faults::an_edge_breaks),
            ("an edge is emptied", faults::an_edge_is_emptied),
            ("an origin is lost, and links are slow", faults::an_origin_is_lost_and_links_are_slow),
        ],
    );
    goes_without_a_trace(&here);
}

#[test]
fn a_network_serves_while_its_bus_its_database_and_anything_else_break() {
    let Some(mut here) = Here::new('c') else { return };
    here.up();
    // Edges read the list of controls every ten seconds.
    for edge in ["eu-1", "us-1", "ap-1"] {
        until("each edge knows both controls", || here.state_of(edge).contains("10.77.2.32:8444").then_some(()));
    }
    run_parts(&here, &[("engines break", faults::engines_break), ("anything breaks", faults::anything_breaks)]);
    here.done(&["down"]);
}

/// Twenty requests of two regions each are answered by their own origins.
fn clients_land_in_their_region(here: &Here) {
    let url = here.url();
    for region in ["eu", "us"] {
        let client = format!("{region}-client");
        let landed: Vec<_> = (0..20).map(|_| here.response(&client, &url).unwrap_or_default()).collect();
        println!("20 requests from {client}: {} of them by {region}-origin", {
            landed.iter().filter(|(_, origin)| *origin == format!("{region}-origin")).count()
        });
        let is_good = |(status, origin): &(u16, String)| *status == 200 && *origin == format!("{region}-origin");
        assert!(landed.iter().all(is_good), "{landed:?}");
    }
}

fn links_have_the_configured_faults(here: &Here) {
    let url = here.url();
    let median = |here: &Here| {
        let report =
            here.json(&["load", "--from", "eu-client", "--requests", "5", "--connections", "1", "--rate", "5"]);
        assert_eq!(report["ok"], report["requests"], "{report}");
        report["median_us"].as_u64().unwrap()
    };
    here.done(&["fault", "slow", "eu-client", "--delay", "150ms"]);
    let slow = median(here);
    assert!(slow >= 300_000, "a round trip is 300 ms, and a request took {slow} us");
    assert!(here.json(&["status"])["slowed"][0].as_str().unwrap().contains("eu-client by 150ms"));
    here.done(&["fault", "heal", "eu-client"]);
    assert!(median(here) < slow);
    here.done(&["fault", "partition", "eu-client"]);
    let output = here.run(&["exec", "eu-client", "--", "curl", "-sS", "--max-time", "2", &url]);
    assert_eq!(output.status.code(), Some(28), "it hangs as with a cable that is unplugged: {}", text(&output.stderr));
    here.done(&["fault", "heal"]);
    until("the client is back", || (here.status("eu-client", &url) == 200).then_some(()));
}

/// After `down`, nothing is left, even with paused, killed and foreign processes.
fn goes_without_a_trace(here: &Here) {
    here.done(&["fault", "pause", "postgres"]);
    here.done(&["fault", "kill", "nats-1"]);
    let mut guest = here.command(&["exec", "eu-client", "--", "sleep", "1000"]).spawn().unwrap();
    here.goes_without_a_trace();
    assert!(!guest.wait().unwrap().success());
    assert!(here.done(&["down"]).contains("there is no laboratory"));
    here.refused(&["status"], 4, "there is no laboratory");
}

#[test]
fn an_up_that_was_broken_off_is_taken_away() {
    let Some(here) = Here::new('b') else { return };
    let up = Program::start(&mut here.command(&["up", "--no-postgres", "--regions", "1"]));
    up.wait_for("bus: three machines of NATS");
    up.signal("KILL");
    up.ended();
    here.refused(&["status"], 5, "was not built to its end");
    here.refused(&["up"], 5, "already exists, incomplete");
    assert!(here.done(&["ls"]).contains("half built"));
    here.done(&["down"]);
    assert!(!here.done(&["ls"]).contains(&here.name));
}

#[test]
fn what_cannot_stand_is_refused_with_a_sentence() {
    let home = Home::new();
    let dir = home.dir.path().join("labs");
    let run = |args: &[&str]| {
        let mut command = home.command(&["lab", "--dir"]);
        let output = command.arg(&dir).args(args).output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    for (args, code, expected) in [
        (&["up", "--regions", "9"][..], 2, "1 to 6 regions, and not 9"),
        (&["up", "--edges", "0"], 2, "1 to 8 edges"),
        (&["up", "--no-postgres", "--controls", "2"], 2, "a database that they share"),
        (&["up", "--loss", "200"], 2, "0 to 100"),
        (&["up", "--rate", "1"], 2, "from 10k to 100G"),
        (&["up", "--lab", "A/b"], 2, "no name of a laboratory"),
        (&["fault", "kill", "eu-1"], 4, "there is no laboratory lab"),
        (&["exec", "eu-client", "--", "true"], 4, "`sallyport lab up` builds it"),
        (&["load"], 4, "there is no laboratory"),
        (&["chaos"], 4, "there is no laboratory"),
        (&["chaos", "--for", "24h"], 2, "expected 12h at the most"),
        (&["chaos", "--only", "kill,melt"], 2, "expected one of kill, pause, partition, slow"),
    ] {
        let (is, printed) = run(args);
        assert!(is == code && printed.contains(expected), "{args:?}: {is} {printed}");
    }
    if rustix::process::geteuid().is_root() {
        let mut nobody = home.program("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_sallyport"), "lab", "up"]);
        let output = nobody.output().unwrap();
        let printed = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && printed.contains("only root can make network namespaces"),
            "{printed}"
        );
    }
}
