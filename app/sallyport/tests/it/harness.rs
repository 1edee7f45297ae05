//! The real program, started as a user would, and small real origins for it to expose.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::contract::{self, Exchange};

/// How long anything may take before a test gives up. Generous: a busy machine must not fail a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const PASSWORD: &str = "a sufficiently odd passphrase";

/// A directory with everything that one `sallyport up` and its commands keep.
pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    /// The library that turns the wall clock of programs, where there is one.
    faketime: Option<String>,
    /// The file of the authorities that programs trust, in place of the system's.
    roots: Option<PathBuf>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), faketime: None, roots: None }
    }

    /// A home whose programs have a wall clock that the test turns (libfaketime); `None`, with the reason printed,
    /// where there is none outside of CI.
    pub(crate) fn with_clock() -> Option<Self> {
        // It fails if an earlier process with its number has left its shared memory behind.
        let library = (0..5).find_map(|_| {
            let library = Command::new("faketime").args(["-f", "+0d", "printenv", "LD_PRELOAD"]).output();
            library.ok().filter(|output| output.status.success())
        });
        let Some(library) = library else {
            assert!(std::env::var_os("CI").is_none(), "faketime must be there in CI");
            println!("skipped: the clock cannot be turned here (Debian's package `faketime` is missing)");
            return None;
        };
        let home = Self { faketime: Some(text(&library.stdout).trim().to_owned()), ..Self::new() };
        home.turn_clock("+0d");
        Some(home)
    }

    /// A home whose programs trust the authorities in this file of it.
    pub(crate) fn trusting(file: &str) -> Self {
        Self::new().with_roots(file)
    }

    /// The home, with programs that trust the authorities in this file of it.
    pub(crate) fn with_roots(self, file: &str) -> Self {
        Self { roots: Some(self.dir.path().join(file)), ..self }
    }

    /// Sets the wall clock of this home's programs, those that run included, to so far from now, such as `+40d`.
    pub(crate) fn turn_clock(&self, offset: &str) {
        let file = self.dir.path().join("clock");
        std::fs::write(file.with_extension("new"), offset).unwrap();
        std::fs::rename(file.with_extension("new"), file).unwrap();
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The program with this home's directories and nothing of the user's environment that could matter.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_sallyport"));
        command.args(args);
        command
    }

    /// Another program, in the same surroundings.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", self.dir.path()).env("SALLYPORT_STATE_DIR", self.dir.path().join("state"));
        command.env("XDG_CONFIG_HOME", self.dir.path().join("config")).env("SALLYPORT_PASSWORD", PASSWORD);
        for name in [
            "SALLYPORT_API",
            "SALLYPORT_CA",
            "SALLYPORT_TOKEN",
            "SALLYPORT_ORGANISATION",
            "SALLYPORT_DATA",
            "SALLYPORT_DATABASE",
            "SALLYPORT_DATABASE_FILE",
            "SALLYPORT_LOG",
            "SALLYPORT_PROXY",
            "SALLYPORT_TRANSPORT",
            "SALLYPORT_RUN_DIR",
            "SUDO_UID",
            "PKEXEC_UID",
            "DOAS_USER",
            "SALLYPORT_SETUP_TOKEN",
            "SALLYPORT_CODE",
            "SALLYPORT_NEW_PASSWORD",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        if let Some(roots) = &self.roots {
            command.env("SSL_CERT_FILE", roots);
        }
        if let Some(library) = &self.faketime {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", self.dir.path().join("clock"));
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        }
        command.stdin(Stdio::null());
        command
    }

    /// A program for which the name is this machine: those that ask the system, which may not know `*.localhost`, get a
    /// hosts file of their own, in a mount namespace (for other users than root, of a user namespace).
    pub(crate) fn knowing(&self, host: &str, program: &str, args: &[&str]) -> Command {
        let hosts = self.dir.path().join("hosts");
        std::fs::write(&hosts, format!("127.0.0.1 localhost {host}\n")).unwrap();
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
        command.arg(hosts).arg(program).args(args).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        eprintln!("$ sallyport {}\n{}{}", args.join(" "), text(&output.stdout), text(&output.stderr));
        output
    }

    /// Runs a command that must work, and gives what it printed as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut with_format = args.to_vec();
        with_format.extend(["-o", "json"]);
        let output = self.run(&with_format);
        assert!(output.status.success(), "sallyport {args:?} failed: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", text(&output.stdout)))
    }

    /// `sallyport up` on free ports, ready to be used.
    pub(crate) fn up(&self, more: &[&str]) -> Up {
        let mut args = vec!["up", "--listen-http", "127.0.0.1:0"];
        let has_any_port = !more.contains(&"--listen");
        if has_any_port {
            args.extend(["--listen", "127.0.0.1:0"]);
        }
        args.extend(more);
        let data = self.data();
        args.extend(["--data", data.to_str().unwrap()]);
        let start = || {
            let program = Program::start(&mut self.command(&args));
            program.wait_for("ready");
            program
        };
        let mut program = start();
        // The kernel has chosen a TCP port whose UDP port a client of another test has.
        while has_any_port && program.output().contains("no HTTP/3: choose another") {
            assert!(program.stop().success());
            program = start();
        }
        let note = self.dir.path().join("state/local.json");
        let note: Value = serde_json::from_slice(&std::fs::read(note).unwrap()).unwrap();
        let api = note["api"].as_str().unwrap().to_owned();
        let port = api.rsplit_once(':').unwrap().1.parse().unwrap();
        Up { program, port, ca: note["ca"].as_str().unwrap().into() }
    }

    /// An account on the running `up`, logged in.
    pub(crate) fn account(&self) {
        let output = self.run(&["account", "create", "--name", "Test", "--email", "test@example.com"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = self.run(&["login", "--email", "test@example.com"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// A socket with these further options; its id and its host name.
    pub(crate) fn socket(&self, more: &[&str]) -> (String, String) {
        let name = fresh_name();
        let mut args = vec!["socket", "create", "--name", &name, "--type", "http"];
        args.extend(more);
        let socket = self.json(&args);
        (socket["id"].as_str().unwrap().to_owned(), socket["dns_name"].as_str().unwrap().to_owned())
    }

    /// A connector for the socket, attached.
    pub(crate) fn connector(&self, socket: &str, origin: SocketAddr, more: &[&str]) -> Program {
        let port = origin.port().to_string();
        let mut args =
            vec!["tunnel", "connect", "--socket-id", socket, "--host", "127.0.0.1", "--port", &port, "-o", "json"];
        args.extend(more);
        let program = Program::start(&mut self.command(&args));
        program.wait_for("attached");
        program
    }
}

/// A name that no other socket has.
pub(crate) fn fresh_name() -> String {
    static GIVEN: AtomicUsize = AtomicUsize::new(1);
    format!("test {}", GIVEN.fetch_add(1, Ordering::Relaxed))
}

/// A running `sallyport up`.
pub(crate) struct Up {
    pub(crate) program: Program,
    pub(crate) port: u16,
    pub(crate) ca: PathBuf,
}

impl Up {
    /// The public address of a host under the domain.
    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.port)
    }

    /// One request by curl, with its certificate checks on.
    pub(crate) fn curl(&self, host: &str, path: &str, more: &[&str]) -> HttpResponse {
        let response = curl(&self.ca, &self.url(host, path), more);
        if host == "api.localhost" && path.starts_with("/v1/") {
            assert_as_described(path, more, &response);
        }
        response
    }
}

/// What curl got.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    /// The value of a header, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// An exchange with the API conforms to the description.
fn assert_as_described(path: &str, curl: &[&str], response: &HttpResponse) {
    let behind =
        |flags: [&str; 2]| curl.iter().position(|one| flags.contains(one)).and_then(|at| curl.get(at + 1)).copied();
    let body = behind(["-d", "--data"]).filter(|text| !text.starts_with('@'));
    let method = behind(["-X", "--request"]).unwrap_or(if body.is_some() { "POST" } else { "GET" });
    contract::check(&Exchange {
        method,
        target: path,
        request: body.map(str::as_bytes),
        status: response.status,
        content_type: response.header("content-type").unwrap_or_default(),
        text: &response.body,
    });
}

/// One request by curl.
pub(crate) fn curl(ca: &Path, url: &str, more: &[&str]) -> HttpResponse {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-D", "/dev/stderr", "-w", "\n%{http_code}", "--cacert"])
        .arg(ca)
        .args(more)
        .arg(url)
        .output()
        .unwrap();
    let (body, status) = text(&output.stdout).rsplit_once('\n').map(|(b, s)| (b.to_owned(), s.to_owned())).unwrap();
    let head = text(&output.stderr);
    HttpResponse { status: status.parse().unwrap_or_else(|_| panic!("{url}: {head}")), head, body }
}

/// How long the last words of a program that has ended are waited for.
const LAST_WORDS_TIME: Duration = Duration::from_secs(2);

/// A program that runs beside the test; ended by its id when the test ends.
pub(crate) struct Program {
    child: Mutex<Child>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        collect(child.stdout.take().unwrap(), lines.clone());
        collect(child.stderr.take().unwrap(), lines.clone());
        Self { child: Mutex::new(child), lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// Everything that was printed so far.
    pub(crate) fn output(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits for a line that contains the text, and gives it.
    pub(crate) fn wait_for(&self, wanted: &str) -> String {
        wait_until(&format!("{wanted:?}"), || {
            if let Some(line) = self.lines.lock().unwrap().iter().find(|line| line.contains(wanted)) {
                return Some(line.clone());
            }
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "ended with {ended:?} before {wanted:?}:\n{}", self.output());
            None
        })
    }

    /// Whether it has come to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_some()
    }

    /// Sends a signal, such as TERM.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end.
    pub(crate) fn ended(&self) -> ExitStatus {
        let status = wait_until("the end of the program", || self.child.lock().unwrap().try_wait().unwrap());
        // Its last words may still be in its pipes, whose readers share the lines; programs that it left behind may
        // hold those open for ever.
        let asked = Instant::now();
        while Arc::strong_count(&self.lines) > 1 && asked.elapsed() < LAST_WORDS_TIME {
            thread::sleep(Duration::from_millis(5));
        }
        status
    }

    /// Asks for an orderly end, and waits for it.
    pub(crate) fn stop(&self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// The most memory it ever had, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        drop(child.kill());
        drop(child.wait());
        if thread::panicking() {
            eprintln!("--- printed by process {}:\n{}", child.id(), self.lines.lock().unwrap().join("\n"));
        }
    }
}

fn collect(from: impl std::io::Read + Send + 'static, lines: Arc<Mutex<Vec<String>>>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
        }
    });
}

/// Lets this process have as many open files as it may: the usual 1,024 are too few for a test with many clients.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

/// Asks again and again until there is an answer.
pub(crate) fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(response) = ask() {
            return response;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A small web service: answers `<name> <method> <target>` and the head it got, one thread a connection.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) fn start(name: &'static str) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").unwrap(), name)
    }

    /// One for each of these hosts, all on the same port.
    pub(crate) fn start_at_hosts<const N: usize>(hosts: [&'static str; N]) -> [Self; N] {
        let listen = || {
            let port = TcpListener::bind((hosts[0], 0)).ok()?.local_addr().ok()?.port();
            hosts.iter().map(|host| TcpListener::bind((*host, port)).ok()).collect::<Option<Vec<_>>>()
        };
        let listeners = wait_until("a port that is free at all hosts", listen);
        let started: Vec<_> =
            listeners.into_iter().zip(hosts).map(|(listener, host)| Self::start_on(listener, host)).collect();
        started.try_into().unwrap_or_else(|_| unreachable!("one for each host"))
    }

    fn start_on(listener: TcpListener, name: &'static str) -> Self {
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counter = counter.clone();
                thread::spawn(move || drop(serve(&stream, name, &counter)));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Paths: `/bytes/N` answers N bytes, `/slow/MS` answers after so many milliseconds, `/trickle/N` sends N lines, one
/// every 100 ms; others answer the request's own head and body.
fn serve(stream: &TcpStream, name: &str, requests: &AtomicUsize) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let mut first = head.split_whitespace();
        let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
        let headers: HashMap<String, String> = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if let Some(count) = target.strip_prefix("/bytes/").and_then(|n| n.parse::<usize>().ok()) {
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {count}\r\n\r\n")?;
            let block = [b'x'; 16_384];
            let mut left = count;
            while left > 0 {
                let n = left.min(block.len());
                writer.write_all(&block[..n])?;
                left -= n;
            }
            continue;
        }
        if let Some(count) = target.strip_prefix("/trickle/").and_then(|n| n.parse::<usize>().ok()) {
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", count * 5)?;
            for _ in 0..count {
                writer.write_all(b"line\n")?;
                thread::sleep(Duration::from_millis(100));
            }
            continue;
        }
        if let Some(ms) = target.strip_prefix("/slow/").and_then(|n| n.parse().ok()) {
            thread::sleep(Duration::from_millis(ms));
        }
        let response = format!("{name} {method} {target}\n{head}{}", String::from_utf8_lossy(&body));
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", response.len())?;
        if method != "HEAD" {
            writer.write_all(response.as_bytes())?;
        }
    }
}
