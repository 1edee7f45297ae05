//! Clients of several implementations, each as `ssh -R`: forwarded bytes arrive unchanged, both ways.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    lab::{Lab, echo, soon, text},
    streams::pattern,
};

/// Bytes per direction: more than a window, and more than the rekey limit of some of the clients.
const BYTES: usize = 3_000_000;

/// The path of a tool, installed by `scripts/tools`. `None` where it cannot be had outside of CI; prints the reason.
fn tool(name: &str) -> Option<PathBuf> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/tools");
    let output = std::process::Command::new(scripts).arg(name).output().unwrap();
    if output.status.success() {
        return Some(text(&output.stdout).trim().into());
    }
    assert!(std::env::var_os("CI").is_none(), "{name} must be there in CI: {}", text(&output.stderr));
    println!("skipped: {name} cannot be had here: {}", text(&output.stderr).trim());
    None
}

/// Whether a program of this package is installed; prints a line when it is not.
fn is_there(program: &str, package: &str) -> bool {
    let found = std::process::Command::new(program).arg("-V").output().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{program} must be there in CI");
        println!("skipped: there is no {program} here (Debian's package `{package}`)");
    }
    found
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name)
}

/// Runs a program that converts or writes a key.
fn run(command: &mut std::process::Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// One of the clients of this folder, with its arguments.
fn forward(mut command: Command, lab: &Lab, port: u16) -> Command {
    command.args([lab.address.port().to_string(), "alice".to_owned()]);
    command.arg(lab.path("alice")).arg(lab.path("known_hosts")).args(["80".to_owned(), port.to_string()]);
    command
}

/// The public address of the forward of port 80; the client's output if the client ended first.
async fn published(lab: &Lab, client: &mut Child) -> SocketAddr {
    tokio::select! {
        address = lab.published(80) => address,
        status = client.wait() => {
            let mut stderr = String::new();
            client.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
            panic!("the client ended ({status:?}): {stderr}");
        }
    }
}

/// Sends all bytes, reads as many, then closes.
async fn round_trip(address: SocketAddr, data: &[u8]) {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    let sent = data.to_vec();
    let sending = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write
    });
    let mut back = vec![0; data.len()];
    soon(read.read_exact(&mut back)).await.unwrap();
    assert!(back == data, "the bytes that came back are not the same");
    drop(sending.await.unwrap());
}

/// The client forwards port 80 to this echo server.
async fn carries(lab: &Lab, mut command: Command) {
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("HOME", lab.path(".")).env_remove("SSH_AUTH_SOCK");
    let mut client = command.spawn().unwrap();
    let address = published(lab, &mut client).await;
    for bytes in [1, BYTES, 1_000] {
        round_trip(address, &pattern(bytes)).await;
    }
    client.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropbear_forwards() {
    if !is_there("dbclient", "dropbear-bin") {
        return;
    }
    let (lab, port) = (Lab::start().await, echo().await);
    run(std::process::Command::new("dropbearconvert")
        .args(["openssh", "dropbear"])
        .args([lab.path("alice"), lab.path("dropbear")]));
    let mut command = Command::new("dbclient");
    command.arg("-i").arg(lab.path("dropbear")).args(["-y", "-y", "-N", "-p", &lab.address.port().to_string()]);
    command.args(["-R", &format!("80:127.0.0.1:{port}"), "alice@127.0.0.1"]);
    carries(&lab, command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn putty_forwards() {
    if !is_there("plink", "putty-tools") {
        return;
    }
    let (lab, port) = (Lab::start().await, echo().await);
    run(std::process::Command::new("puttygen").arg(lab.path("alice")).arg("-o").arg(lab.path("alice.ppk")));
    let shown = std::process::Command::new("ssh-keygen").arg("-lf").arg(lab.path("ssh_host_ed25519_key")).output();
    let shown = text(&shown.unwrap().stdout);
    let fingerprint = shown.split_whitespace().nth(1).unwrap();
    let mut command = Command::new("plink");
    command.args(["-batch", "-ssh", "-N", "-P", &lab.address.port().to_string(), "-hostkey", fingerprint]);
    command.arg("-i").arg(lab.path("alice.ppk"));
    command.args(["-R", &format!("80:127.0.0.1:{port}"), "alice@127.0.0.1"]);
    carries(&lab, command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paramiko_asyncssh_and_libssh2_forward() {
    let Some(python) = tool("ssh-clients") else { return };
    for name in ["paramiko_forward.py", "asyncssh_forward.py", "libssh2_forward.py"] {
        println!("{name}");
        let (lab, port) = (Lab::start().await, echo().await);
        let mut command = Command::new(&python);
        command.arg(script(name));
        carries(&lab, forward(command, &lab, port)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gos_ssh_forwards() {
    let Some(program) = tool("go-ssh-client") else { return };
    let (lab, port) = (Lab::start().await, echo().await);
    carries(&lab, forward(Command::new(program), &lab, port)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openssh_forwards_with_every_algorithm() {
    let (lab, port) = (Lab::start().await, echo().await);
    let exchanges =
        ["sntrup761x25519-sha512@openssh.com,curve25519-sha256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521"];
    let ciphers = ["aes128-ctr", "aes256-ctr", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com"];
    let macs = ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com"];
    let exchanges = exchanges.map(|name| format!("KexAlgorithms={name}"));
    let ciphers =
        ciphers.iter().flat_map(|cipher| macs.map(|mac| (format!("Ciphers={cipher}"), format!("MACs={mac}"))));
    let options = exchanges.into_iter().map(|one| (one, "Ciphers=chacha20-poly1305@openssh.com".to_owned()));
    for (first, second) in options.chain(ciphers) {
        println!("{first} {second}");
        let forward = format!("80:127.0.0.1:{port}");
        let mut command = lab.ssh_as("alice", "alice", &["-N", "-o", &first, "-o", &second, "-R", &forward]);
        command.arg("127.0.0.1");
        carries(&lab, command).await;
        lab.gate.published.lock().unwrap().clear();
    }
}

/// ssh-audit reports weak algorithms. Its findings on the NIST curves and on key exchanges without ML-KEM, which older
/// clients need, are expected.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_weak_is_offered() {
    const KNOWN: [&str; 3] = [
        "using elliptic curves that are suspected as being backdoored",
        "using weak random number generator could reveal the key",
        "does not provide protection against post-quantum attacks",
    ];
    let Some(python) = tool("ssh-clients") else { return };
    let lab = Lab::start().await;
    let mut command = Command::new(python.with_file_name("ssh-audit"));
    command.args(["-n", "-l", "warn", "--skip-rate-test", "-p", &lab.address.port().to_string(), "127.0.0.1"]);
    let output = soon(command.output()).await.unwrap();
    let report = text(&output.stdout);
    assert!(report.contains("(kex) ecdh-sha2-nistp256"), "{report}{}", text(&output.stderr));
    for finding in report.lines().filter(|line| line.contains("[warn]") || line.contains("[fail]")) {
        assert!(KNOWN.iter().any(|known| finding.contains(known)), "{report}");
    }
}
