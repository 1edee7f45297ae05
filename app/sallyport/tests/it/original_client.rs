//! The published original client and the system's ssh, with changed addresses only.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    harness::{Home, Origin, Program, Up, text, wait_until},
    protocols::{client, tool},
    tcp::free_port,
};

const PASSWORD: &str = "correct horse battery";

/// The client at an `up`, with a key and an `ssh` that finds the edge.
struct Original<'a> {
    python: PathBuf,
    home: &'a Home,
    up: &'a Up,
    dir: PathBuf,
}

impl<'a> Original<'a> {
    /// `None` if the client is not installed.
    fn new(home: &'a Home, up: &'a Up) -> Option<Self> {
        let python = tool("mysocketctl")?;
        let has_ssh = Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_ok();
        if !has_ssh {
            assert!(std::env::var_os("CI").is_none(), "ssh must be there in CI");
            println!("skipped: there is no ssh here");
            return None;
        }
        let dir = home.data().parent().unwrap().to_owned();
        let key = dir.join("key");
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(&key).status();
        assert!(made.unwrap().success());
        // The client's own host name stands for the edge, as by a name server.
        let config = format!(
            "Host ssh.mysocket.io\n HostName 127.0.0.1\n Port {}\n IdentityFile {}\n IdentitiesOnly yes\n",
            up.port,
            key.display()
        );
        fs::write(dir.join("ssh.conf"), config).unwrap();
        let ssh = dir.join("bin/ssh");
        fs::create_dir(dir.join("bin")).unwrap();
        fs::write(&ssh, format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", which("ssh"), dir.join("ssh.conf").display()))
            .unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { python, home, up, dir })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.program(self.python.to_str().unwrap());
        let path = format!("{}:{}", self.dir.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).env("REQUESTS_CA_BUNDLE", &self.up.ca);
        let (api, port) = (format!("https://api.localhost:{}/", self.up.port), self.up.port.to_string());
        command.args(["-u", &client("original_client.py"), &api, &port]).args(args);
        command
    }

    /// Runs the client, which must succeed, and returns its output.
    fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{args:?}: {printed}{}", text(&output.stderr));
        printed
    }

    fn key(&self) -> String {
        self.dir.join("key.pub").to_str().unwrap().to_owned()
    }
}

fn which(program: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path.split(':').map(|dir| Path::new(dir).join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("there is no {program}")).display().to_string()
}

/// The cell of a printed table's first row, under a title.
fn cell(printed: &str, title: &str) -> String {
    let mut rows = printed.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let titles = cells(rows.next().unwrap_or_default());
    let at = titles.iter().position(|cell| cell == title).unwrap_or_else(|| panic!("no {title} in {printed}"));
    cells(rows.next().unwrap_or_default()).swap_remove(at)
}

#[test]
fn the_published_client_makes_an_account_and_carries_traffic() {
    let home = Home::new();
    // One free port, for the one TCP socket below.
    let port = free_port();
    let up = home.up(&["--port-range", &format!("{port}-{port}")]);
    let Some(original) = Original::new(&home, &up) else { return };
    let (email, password) = (["--email", "ann@example.com"], ["--password", PASSWORD]);
    let key = original.key();
    let account = [&["account", "create", "--name", "Ann", "--sshkey", &key][..], &email, &password].concat();
    assert!(original.run(&account).contains("your account has been created"));
    assert!(original.run(&[&["login"][..], &email, &password].concat()).contains("Logged in!"));
    let shown = original.run(&["account", "show"]);
    assert!(shown.contains("ann@example.com") && shown.contains("ssh-ed25519 AAAA"), "{shown}");

    let origin = Origin::start("origin");
    let origin_port = origin.address.port().to_string();
    let connect = Program::start(&mut original.command(&["connect", "--port", &origin_port, "--name", "test"]));
    connect.wait_for("is open");
    let host = cell(&connect.output(), "dns_name");
    let response = up.curl(&host, "/hello", &[]);
    assert!(response.status == 200 && response.body.starts_with("origin GET /hello\n"), "{}", response.body);
    // The live log in ssh's shell channel.
    connect.wait_for("  /hello");
    assert!(original.run(&["socket", "ls"]).contains(&host));
    connect.signal("INT");
    connect.wait_for("cleaning up");
    connect.ended();
    wait_until("the socket to be gone", || (up.curl(&host, "/", &[]).status == 404).then_some(()));

    let made = original.run(&["socket", "create", "--name", "raw", "--type", "tcp"]);
    assert_eq!(cell(&made, "port(s)"), port.to_string());
    let socket = cell(&made, "socket_id");
    let full = original.command(&["socket", "create", "--name", "raw", "--type", "tcp"]).output().unwrap();
    assert!(!full.status.success() && text(&full.stdout).contains("409"), "{}", text(&full.stdout));
    let tunnel = cell(&original.run(&["tunnel", "create", "--socket_id", &socket]), "tunnel_id");
    assert!(original.run(&["tunnel", "ls", "--socket_id", &socket]).contains(&tunnel));
    let args = ["tunnel", "connect", "--socket_id", &socket, "--tunnel_id", &tunnel, "--port", &origin_port];
    let carrying = Program::start(&mut original.command(&args));
    carrying.wait_for("is open");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"GET /raw HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    wait_until("the answer", || {
        let mut bytes = [0; 1_024];
        let count = client.read(&mut bytes).unwrap();
        response.push_str(&text(&bytes[..count]));
        (count == 0 || response.contains("origin GET /raw")).then_some(())
    });
    assert!(response.contains("origin GET /raw"), "{response}");
    carrying.signal("INT");
    carrying.ended();
    original.run(&["tunnel", "delete", "--socket_id", &socket, "--tunnel_id", &tunnel]);
    original.run(&["socket", "delete", "--socket_id", &socket]);
    assert!(!original.run(&["socket", "ls"]).contains(&socket));
}

#[test]
fn the_published_client_carries_traffic_with_its_own_ssh_too() {
    let home = Home::new();
    let up = home.up(&[]);
    let Some(original) = Original::new(&home, &up) else { return };
    // Where Paramiko looks for keys.
    let usual = original.dir.join(".ssh");
    fs::create_dir(&usual).unwrap();
    fs::copy(original.dir.join("key"), usual.join("id_ed25519")).unwrap();
    fs::copy(original.key(), usual.join("id_ed25519.pub")).unwrap();
    let (email, password) = (["--email", "ann@example.com"], ["--password", PASSWORD]);
    let key = original.key();
    original.run(&[&["account", "create", "--name", "Ann", "--sshkey", &key][..], &email, &password].concat());
    original.run(&[&["login"][..], &email, &password].concat());
    let origin = Origin::start("origin");
    let port = origin.address.port().to_string();
    let protection = ["--protected", "--username", "ann", "--password", "open sesame now"];
    let args = [&["connect", "--port", &port, "--name", "test", "--engine", "paramiko"][..], &protection].concat();
    let connect = Program::start(&mut original.command(&args));
    connect.wait_for("is open");
    let host = cell(&connect.output(), "dns_name");
    assert_eq!(up.curl(&host, "/hello", &[]).status, 401, "protected");
    let response = up.curl(&host, "/hello", &["-u", "ann:open sesame now"]);
    assert!(response.status == 200 && response.body.starts_with("origin GET /hello\n"), "{}", response.body);
    connect.wait_for("200 GET");
    // Within a window: the client drops what does not fit into one.
    let large = up.curl(&host, "/bytes/100000", &["-u", "ann:open sesame now"]);
    assert_eq!((large.status, large.body.len()), (200, 100_000));
    // Its own ssh takes the first one for the connection, and the second one for itself.
    connect.signal("INT");
    connect.wait_for("Disconnected");
    connect.signal("INT");
    connect.wait_for("cleaning up");
    connect.ended();
    wait_until("the socket to be gone", || (up.curl(&host, "/", &[]).status == 404).then_some(()));
}
