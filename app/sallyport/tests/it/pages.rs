//! The pages of platforms do what they say: a fresh Debian with the real systemd, the real package, and the blocks of
//! the pages as they stand there.
//!
//! A block ```` ```sh run ```` is run to its end, and ```` ```sh start ```` runs on. A block ```` ```text see ````
//! behind it must be in what it prints: the same lines in the same order, others between them. Names, numbers and
//! tokens differ each time.

use std::{
    io::{PipeWriter, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Mutex,
};

use crate::{
    harness::{Program, text, wait_until},
    tcp::installed,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// How many lines one screen has, with what a browser puts around them.
const MAX_LINES: usize = 100;
/// The exit code of scripts/machine where there can be no machines.
const CANNOT: i32 = 3;
/// The units of the numbers in what a program prints, which change with the numbers.
const UNITS: [&str; 6] = ["ms", "s", "B", "kB", "MB", "GB"];

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    /// What stands behind the fence, such as `sh run`.
    kind: String,
    text: String,
}

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/docs/on/{name}.md")).unwrap()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(kind)) => open = Some(Block { kind: kind.to_owned(), text: String::new() }),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

/// The line without what differs each time.
fn masked(line: &str) -> String {
    let word = |word: &str| {
        if word.starts_with("sp") && word.chars().nth(3) == Some('_') {
            return "SECRET".to_owned();
        }
        let time = word.trim_end_matches("ms").trim_end_matches('s');
        if time != word && time.parse::<f64>().is_ok() {
            return "TIME".to_owned();
        }
        if word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return "ID".to_owned();
        }
        if UNITS.contains(&word) {
            return "UNIT".to_owned();
        }
        let parts = word.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-').map(name_masked);
        let mut shown = String::new();
        for c in parts.collect::<String>().chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            // Numbers differ in length too.
            match (shown.chars().last(), c) {
                (Some('0'), '0' | '.') => {}
                _ => shown.push(c),
            }
        }
        shown
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// `NAME` in place of a name such as `wandering-shape-7752`; `end` may have one more character.
fn name_masked(part: &str) -> String {
    let end = part.chars().last().filter(|c| !c.is_ascii_alphanumeric() && *c != '-');
    let name = part.trim_end_matches(|c| Some(c) == end);
    let words: Vec<&str> = name.split('-').collect();
    let is_name = words.len() == 3 && words[2].len() == 4 && words[2].bytes().all(|byte| byte.is_ascii_digit());
    if is_name { format!("NAME{}", end.map(String::from).unwrap_or_default()) } else { part.to_owned() }
}

/// The first line of `wanted` that is not printed behind the lines before it.
fn missing(wanted: &str, printed: &str) -> Option<String> {
    let printed: Vec<String> = printed.lines().map(masked).collect();
    let mut rest = printed.iter();
    let wanted = wanted.lines().filter(|line| !line.trim().is_empty());
    wanted.map(masked).find(|line| !rest.any(|printed| printed == line))
}

fn tool(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).output().unwrap();
    eprintln!("$ {program} {}\n{}{}", args.join(" "), text(&output.stdout), text(&output.stderr));
    output
}

fn done(program: &str, args: &[&str]) {
    assert!(tool(program, args).status.success(), "{program} {args:?}");
}

/// A machine in a network of its own that leads nowhere, with every name below example.com at itself.
struct Machine {
    name: String,
    net: String,
    folder: tempfile::TempDir,
    shell: Option<Shell>,
    _names: Program,
}

/// A shell in the machine.
struct Shell {
    program: Program,
    folder: PathBuf,
    input: Mutex<PipeWriter>,
    asked: Mutex<usize>,
}

impl Machine {
    /// `None`, with the reason printed, where this computer cannot have one.
    fn start() -> Option<Self> {
        let dnsmasq = installed("dnsmasq", "dnsmasq-base")?;
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().to_owned();
        let at = |name: &str| base.join(name).display().to_string();
        let id = std::process::id();
        let (name, net) = (format!("pages{id}"), format!("pages{id}"));
        let machines = at("machines");
        let machine = |args: &[&str]| {
            let script = format!("{ROOT}/scripts/machine");
            Command::new(script).args(args).env("SALLYPORT_MACHINES", &machines).output().unwrap()
        };
        // It says whether there can be machines here, and makes their root once.
        let root = machine(&["root"]);
        if root.status.code() == Some(CANNOT) {
            assert!(std::env::var_os("CI").is_none(), "machines must be possible in CI: {}", text(&root.stderr));
            println!("skipped: {}", text(&root.stderr));
            return None;
        }
        std::fs::create_dir(at("bin")).unwrap();
        done("strip", &["-o", &at("bin/sallyport"), env!("CARGO_BIN_EXE_sallyport")]);
        done(&format!("{ROOT}/packaging/debs"), &["--compression", "none", &at("bin"), &at("debs")]);
        done("ip", &["netns", "add", &net]);
        done("ip", &["-n", &net, "link", "set", "lo", "up"]);
        let dnsmasq = dnsmasq.display().to_string();
        let mut names = Command::new("ip");
        names.args(["netns", "exec", &net, &dnsmasq, "--keep-in-foreground", "--no-resolv", "--no-hosts"]);
        names.args(["--conf-file=/dev/null", "--pid-file=", "--listen-address=127.0.0.1", "--bind-interfaces"]);
        let names = Program::start(names.arg("--address=/example.com/127.0.0.1").stdin(Stdio::null()));
        let mut made = Self { name, net, folder, shell: None, _names: names };
        let started = machine(&["start", &made.name, "--netns", &made.net, "--bind", &format!("{}:/mnt", at("debs"))]);
        assert!(started.status.success(), "{}", text(&started.stderr));
        made.shell = Some(Shell::start(&mut made.script(&["run", &made.name, "bash"]), Path::new("/root")));
        // `sudo` is not there, and its user is root.
        made.does(
            "echo nameserver 127.0.0.1 > /etc/resolv.conf
             printf '#!/bin/sh\\nexec \"$@\"\\n' > /usr/local/bin/sudo; chmod 755 /usr/local/bin/sudo
             export DEBIAN_FRONTEND=noninteractive; apt-get install --yes /mnt/*.deb",
        );
        Some(made)
    }

    fn script(&self, args: &[&str]) -> Command {
        let mut command = Command::new(format!("{ROOT}/scripts/machine"));
        command.args(args).env("SALLYPORT_MACHINES", self.folder.path().join("machines"));
        command
    }

    fn does(&self, commands: &str) -> String {
        self.shell().does(commands)
    }

    fn shell(&self) -> &Shell {
        self.shell.as_ref().unwrap()
    }
}

impl Shell {
    /// Starts a shell, whose blocks are kept in this folder.
    fn start(command: &mut Command, folder: &Path) -> Self {
        let (reader, input) = std::io::pipe().unwrap();
        let program = Program::start(command.stdin(Stdio::from(reader)));
        let shell = Self { program, folder: folder.to_owned(), input: Mutex::new(input), asked: Mutex::new(0) };
        shell.does("exec 2>&1; set -E");
        shell
    }

    /// Runs commands; what they print, and their exit code.
    fn asks(&self, commands: &str) -> (String, i32) {
        let mut asked = self.asked.lock().unwrap();
        let (former, mark) = (format!("mark {asked} "), format!("mark {} ", *asked + 1));
        *asked += 1;
        let line = format!("{commands}\nprintf '\\n{mark}%s\\n' $?\n");
        self.input.lock().unwrap().write_all(line.as_bytes()).unwrap();
        let code = self.program.wait_for(&mark).trim_start_matches(&mark).parse().unwrap();
        let printed = self.program.output();
        let lines = printed.lines().skip_while(|line| *asked > 1 && !line.starts_with(&former));
        let lines = lines.take_while(|line| !line.starts_with(&mark)).filter(|line| !line.starts_with(&former));
        (lines.collect::<Vec<_>>().join("\n"), code)
    }

    fn does(&self, commands: &str) -> String {
        let (printed, code) = self.asks(commands);
        assert_eq!(code, 0, "{commands}: {printed}");
        printed
    }

    /// Does what the page says, with these words in place of others, and sees what it shows.
    /// The deed is done before each block.
    fn plays(&self, name: &str, words: &[(&str, &str)], before: &dyn Fn(&Block)) {
        let page = page(name);
        let (mut last, mut number) = (None, 0);
        for block in blocks(&page) {
            before(&block);
            let text = words.iter().fold(block.text, |text, (from, to)| text.replace(from, to));
            number += 1;
            let file = self.folder.join(format!("{name}-{number}"));
            let file = file.display();
            let write = format!("cat > {file}.sh <<'END OF THE BLOCK'\n{text}END OF THE BLOCK");
            match block.kind.as_str() {
                "sh run" => {
                    self.does(&write);
                    let run = format!(
                        "failed=; trap 'failed=$BASH_COMMAND' ERR; . {file}.sh > {file}.out 2>&1 < /dev/null\n\
                         trap - ERR; cat {file}.out; [ -z \"$failed\" ] || {{ echo \"failed: $failed\"; false; }}"
                    );
                    self.does(&run);
                    last = Some((file.to_string(), false));
                }
                "sh start" => {
                    self.does(&write);
                    self.does(&format!("setsid bash {file}.sh > {file}.out 2>&1 < /dev/null &"));
                    last = Some((file.to_string(), true));
                }
                "text see" => {
                    let (file, runs_on) = last.clone().unwrap_or_else(|| panic!("{name}: nothing shows this: {text}"));
                    let shown = || self.does(&format!("cat {file}.out"));
                    if runs_on {
                        wait_until(&format!("{name} to show:\n{text}"), || {
                            missing(&text, &shown()).is_none().then_some(())
                        });
                    }
                    let shown = shown();
                    assert_eq!(missing(&text, &shown), None, "{name} shows:\n{shown}\nwhere the page has:\n{text}");
                }
                _ => {}
            }
        }
        // As Ctrl-C does: each block is a group of processes.
        self.asks("for job in $(jobs -p); do kill -- -$job; done; wait");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shell = None;
        drop(self.script(&["stop", &self.name, "--now"]).output());
        drop(Command::new("ip").args(["netns", "delete", &self.net]).output());
    }
}

#[test]
fn a_machine_becomes_a_server_serves_a_home_and_a_job_by_the_words_of_their_pages() {
    let Some(machine) = Machine::start() else { return };
    machine.does("export SALLYPORT_PASSWORD='a sufficiently odd passphrase'");
    // A public authority cannot be reached from here, so the server's own one is trusted.
    machine.shell().plays("server", &[("SALLYPORT_ACME=ann@example.com\n", "")], &|_| ());
    machine.does(
        "install -m 644 /var/lib/sallyport/ca.pem /etc/sallyport/ca.pem
         mkdir /etc/systemd/system/sallyport-run.service.d
         printf '[Service]\\nEnvironment=SALLYPORT_CA=/etc/sallyport/ca.pem\\n' \
           > /etc/systemd/system/sallyport-run.service.d/ca.conf
         systemctl daemon-reload
         export SALLYPORT_CA=/etc/sallyport/ca.pem CURL_CA_BUNDLE=/etc/sallyport/ca.pem
         mkdir /srv/www; echo 'a page of mine' > /srv/www/index.html
         for port in 8123 2342 8000; do systemd-run python3 -m http.server --directory /srv/www $port; done
         for port in 8123 2342 8000; do until curl -so /dev/null localhost:$port; do sleep 0.1; done; done",
    );
    let token = machine.does("sallyport token create --name pages --scope sockets:write");
    let token = token.split_whitespace().find(|word| word.starts_with("spt_")).unwrap().to_owned();
    machine.shell().plays("machine", &[], &|block| {
        if block.text.contains("tunnel ls") {
            machine.does(
                "hostname web-1; (sallyport tunnel connect shop 8000 --tunnel-id web-1 > /root/web-1.out 2>&1 &)",
            );
            machine.does("until grep -q https /root/web-1.out; do sleep 0.1; done");
        }
    });
    machine.does("sallyport logout");
    let words = [("spt_...", &*token)];
    machine.shell().plays("home", &words, &|_| ());
    machine.shell().plays("ci", &words, &|_| ());
    assert_eq!(machine.does("cat page.html").trim(), "a page of mine");
    let left = machine
        .does(&format!("SALLYPORT_TOKEN={token} SALLYPORT_API=https://api.tunnels.example.com sallyport socket ls"));
    let mut names: Vec<_> = left.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["home", "pictures", "shop"], "what was for a time only is gone: {left}");
}

/// The command of a page without a part that stands for the outer world.
const PUBLISHED: &str = "--publish 443:8443 --publish 443:8443/udp --publish 80:8080";

/// A program that has its containers in this folder.
fn within_store(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("CONTAINERS_STORAGE_CONF", folder.join("storage.conf"));
    command.env("CONTAINERS_CONF", folder.join("containers.conf"));
    command
}

/// The containers of a folder, which end with the test.
struct Containers(PathBuf);

impl Drop for Containers {
    fn drop(&mut self) {
        for args in [&["rm", "--force", "--time", "0", "--all"][..], &["volume", "prune", "--force"]] {
            drop(within_store("podman", &self.0).args(args).output());
        }
    }
}

#[test]
fn a_container_is_a_server_by_the_words_of_its_page() {
    if [("podman", "podman"), ("buildah", "buildah")]
        .iter()
        .any(|(program, package)| installed(program, package).is_none())
    {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: images are made by root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(at("bin")).unwrap();
    done("strip", &["-o", &at("bin/sallyport"), env!("CARGO_BIN_EXE_sallyport")]);
    let images = format!("{ROOT}/packaging/images");
    done("env", &["SOURCE_DATE_EPOCH=1700000000", &images, "--any-base", &at("bin"), folder.path().to_str().unwrap()]);
    let version = env!("CARGO_PKG_VERSION");
    // A store of its own, and limits that a test may set.
    let (root, run) = (at("root"), at("run"));
    let store = format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{root}\"\nrunroot = \"{run}\"\n");
    std::fs::write(at("storage.conf"), store).unwrap();
    let limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
                  [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";
    std::fs::write(at("containers.conf"), limits).unwrap();
    // The network leads nowhere, so the names are those of the container itself.
    let names = ["api", "login", "tunnel"].map(|name| format!("--add-host {name}.tunnels.example.com:127.0.0.1"));
    let network = format!("--network none {}", names.join(" "));
    let _containers = Containers(folder.path().to_owned());
    let mut shell = within_store("bash", folder.path());
    let shell = Shell::start(shell.current_dir(folder.path()), folder.path());
    let word = "sallyport/sallyport:0.1.0";
    let words = [
        (PUBLISHED, &*network),
        ("--public-port 443 --public-quic-port 443", "--public-port 8443"),
        ("https://api.tunnels.example.com", "https://api.tunnels.example.com:8443"),
        ("podman exec -it", "podman exec -e SALLYPORT_PASSWORD=a-sufficiently-odd-passphrase"),
        ("0.1.0", version),
    ];
    assert!(page("container").contains(PUBLISHED) && page("container").contains(word));
    shell.plays("container", &words, &|block| {
        if block.text.contains("sallyport status") {
            shell.does("until podman logs sallyport 2>&1 | grep -q ' ready '; do sleep 0.1; done");
        }
    });
    let changed =
        shell.does("podman diff sallyport; podman inspect sallyport --format '{{.EffectiveCaps}} {{.Config.User}}'");
    assert!(changed.trim().ends_with("[] 65532:65532"), "{changed}");
}

#[test]
fn pages_of_platforms_are_one_screen_of_blocks_to_copy_and_to_see() {
    for entry in Path::new(ROOT).join("docs/on").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.lines().count() <= MAX_LINES, "{}", path.display());
        if path.ends_with("index.md") {
            continue;
        }
        let kinds: Vec<_> = blocks(&page).into_iter().map(|block| block.kind).collect();
        assert!(kinds.iter().any(|kind| kind.starts_with("sh")), "{}: nothing to copy", path.display());
        assert!(kinds.iter().any(|kind| kind.starts_with("text")), "{}: nothing to see", path.display());
    }
}

#[test]
fn what_a_page_shows_is_compared_without_what_differs_each_time() {
    let printed = "a\nhome  https://modest-lantern-1308.tunnels.example.com\nspt_abc\nup 149 [::]:443 89 MB 1.5 s";
    assert_eq!(
        missing("home  https://calm-bay-1000.tunnels.example.com\n\nspt_...\nup  7 [::]:443  1 GB 20 ms", printed),
        None
    );
    assert_eq!(
        missing("spt_...\nhome https://calm-bay-1000.tunnels.example.com", printed).unwrap(),
        masked("home https://calm-bay-1000.tunnels.example.com")
    );
    assert!(missing("home  https://calm-bay.tunnels.example.com", printed).is_some());
    assert!(missing("home  http://calm-bay-1000.tunnels.example.com", printed).is_some());
    assert!(missing("up 149 [::]:443 89 MB", printed).is_some());
}
