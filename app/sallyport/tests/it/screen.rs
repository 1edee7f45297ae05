//! The live screen of `connect`, in a real terminal: tmux.

use std::process::Command;

use crate::harness::{Home, Origin, Up, text, wait_until};

/// A terminal in tmux, with a server of its own.
struct Pane {
    socket: String,
}

impl Pane {
    /// Starts a command in a terminal of 80 columns and 24 lines.
    fn start(home: &Home, line: &str) -> Self {
        let pane = Self { socket: home.dir.path().join("tmux").display().to_string() };
        // After Ctrl-Z, Enter lets the command go on.
        let shell = format!(
            "set -m; {line}; code=$?; while [ $code -ge 128 ]; do echo stopped; read enter; fg; code=$?; done; \
             echo ended with $code; stty -a | grep -o ' -\\?echo '; exec cat"
        );
        pane.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &shell]);
        pane
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").args(["-S", &self.socket]).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until a text is shown, and returns all that is.
    fn wait_for(&self, wanted: &str) -> String {
        wait_until(&format!("{wanted:?} in the terminal"), || {
            let shown = self.shown();
            shown.contains(wanted).then_some(shown)
        })
    }

    /// The process id of the command.
    fn pid(&self) -> String {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let found = Command::new("pgrep").args(["-P", shell.trim()]).output().unwrap();
        text(&found.stdout).trim().to_owned()
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        drop(Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output());
    }
}

/// Whether tmux is there; a test that needs it says that it is skipped.
fn has_tmux() -> bool {
    let is_there = Command::new("tmux").arg("-V").output().is_ok();
    if !is_there {
        println!("skipped: tmux is not there: scripts/need tmux");
    }
    is_there
}

/// The command line of `connect` in a terminal.
fn connect(home: &Home, origin: &Origin, settings: &str, options: &str) -> String {
    let command = home.command(&["connect"]);
    let set = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| {
        value.map(|value| format!("{}='{}'", name.display(), value.display()))
    };
    let environment: Vec<_> = command.get_envs().filter_map(set).collect();
    let program = env!("CARGO_BIN_EXE_sallyport");
    let port = origin.address.port();
    format!("env {} {settings} {program} connect {port} --name shop {options}", environment.join(" "))
}

/// The public host in the picture.
fn host_in(shown: &str) -> String {
    let url = shown.lines().next().unwrap().split("https://").nth(1).unwrap();
    url.split([':', ' ']).next().unwrap().to_owned()
}

fn start(settings: &str, options: &str) -> (Home, Up, Origin, Pane, String) {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Origin::start("origin");
    let pane = Pane::start(&home, &connect(&home, &origin, settings, options));
    let host = host_in(&pane.wait_for("● "));
    (home, up, origin, pane, host)
}

#[test]
fn requests_show_as_they_come_and_are_sent_again() {
    if !has_tmux() {
        return;
    }
    let (_home, up, origin, pane, host) = start("", "");
    let lines = pane.shown();
    assert!(lines.contains("→ http://localhost:") && lines.contains("page  http://127.0.0.1:"), "{lines}");
    assert_eq!(up.curl(&host, "/first", &[]).status, 200);
    assert_eq!(up.curl(&host, "/second", &["-d", "a=b"]).status, 200);
    pane.wait_for("200 POST    /second");
    pane.wait_for("200 GET     /first");
    pane.press(&["Enter"]);
    pane.wait_for("content-type: application/x-www-form-urlencoded");
    pane.press(&["NPage"]);
    let details = pane.wait_for("Response");
    assert!(details.contains("a = b"), "{details}");

    // A POST asks first.
    let before = origin.count();
    pane.press(&["r"]);
    pane.wait_for("y sends it again");
    pane.press(&["y"]);
    wait_until("the request at the origin again", || (origin.count() > before).then_some(()));
    pane.press(&["Escape", "/"]);
    pane.press(&["-l", "path:/first"]);
    pane.press(&["Enter"]);
    wait_until("the filter", || {
        let shown = pane.shown();
        (shown.contains("/first") && !shown.contains("POST    /second")).then_some(())
    });

    // Ctrl-Z stops the program, and the picture is back when it goes on.
    let pid = pane.pid();
    pane.press(&["C-z"]);
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    wait_until("the program to stop", || stat().contains(") T ").then_some(()));
    let shown = pane.wait_for("stopped");
    assert!(!shown.contains("filter: "), "the terminal is as it was: {shown}");
    pane.press(&["Enter"]);
    pane.wait_for("filter: path:/first");

    // Another size, and the end: the address and the sum stay on the terminal as it was.
    pane.tmux(&["resize-window", "-x", "50", "-y", "14"]);
    wait_until("a smaller picture", || (pane.shown().lines().count() <= 14).then_some(()));
    pane.wait_for("filter: path:/first");
    pane.press(&["q"]);
    let ended = pane.wait_for(" echo");
    assert!(
        ended.contains("2 requests, 0 failed") && ended.contains(&host) && ended.contains("ended with 0"),
        "{ended}"
    );
}

#[test]
fn plain_lines_are_those_of_a_terminal_without_a_screen() {
    if !has_tmux() {
        return;
    }
    for (settings, options) in [("", "--plain"), ("TERM=dumb", "")] {
        let home = Home::new();
        let up = home.up(&[]);
        home.account();
        let origin = Origin::start("origin");
        let pane = Pane::start(&home, &connect(&home, &origin, settings, options));
        let shown = pane.wait_for("open at https://");
        assert!(shown.contains("origin") && !shown.contains("q quit"), "{shown}");
        up.curl(&host_in(&shown), "/plain", &[]);
        pane.wait_for("GET     /plain");
        pane.press(&["C-c"]);
        pane.wait_for("ended with 0");
    }
}

#[test]
fn no_colours_where_none_are_wanted_and_no_requests_where_none_are_kept() {
    if !has_tmux() {
        return;
    }
    let (_home, up, _origin, pane, host) = start("NO_COLOR=1", "--no-inspect");
    up.curl(&host, "/seen", &[]);
    let shown = pane.wait_for("/seen");
    assert!(shown.contains("no inspector: requests are not kept"), "{shown}");
    let colored = pane.tmux(&["capture-pane", "-p", "-e"]);
    let colors = (0..8).flat_map(|color| [format!("[3{color}m"), format!("[9{color}m"), format!(";3{color}m")]);
    assert!(colors.into_iter().all(|color| !colored.contains(&color)), "{colored:?}");
    assert!(Command::new("kill").args(["-TERM", &pane.pid()]).status().unwrap().success());
    let ended = pane.wait_for(" echo");
    assert!(ended.contains("1 request,") && ended.contains("ended with 0"), "{ended}");
}
