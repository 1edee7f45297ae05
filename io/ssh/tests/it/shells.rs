//! The client's shell: its output, and the refused operations.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use crate::lab::{Lab, TAKEN_PORT, curl, soon, text, until, web};

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_shows_the_address_and_the_live_log() {
    let lab = Lab::start().await;
    let web = web("hello").await;
    for options in [&["-T"][..], &["-tt"]] {
        let mut client = lab.spawn(&[options, &["-R", &format!("80:localhost:{web}")]].concat());
        client.line_with("welcome to the test").await;
        let line = client.line_with("your service: http://127.0.0.1:").await;
        assert_eq!(line.ends_with("\r\n"), options == ["-tt"], "{line:?}");
        assert_eq!(curl(lab.published(80).await).await, "hello");
        client.line_with("visitor from 127.0.0.1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_without_a_forward_says_what_to_ask_for() {
    let lab = Lab::start().await;
    let mut without = lab.spawn(&["-T"]);
    without.line_with("nothing is forwarded yet: ask for it with -R, for example -R 80:localhost:8000").await;
    for port in [80, TAKEN_PORT] {
        let mut with = lab.spawn(&["-T", "-R", &format!("{port}:localhost:1")]);
        with.line_with("welcome to the test").await;
        let mut next = String::new();
        soon(with.stdout.read_line(&mut next)).await.unwrap();
        assert!(next.contains("your service") || next.contains("port 81 is taken"), "{next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn control_c_and_q_end_a_shell_with_a_terminal() {
    let lab = Lab::start().await;
    for key in [b"\x03", b"\x04", b"q"] {
        let mut client = lab.spawn(&["-tt", "-R", "80:localhost:1"]);
        client.line_with("your service").await;
        let mut stdin = client.stdin.take().unwrap();
        stdin.write_all(key).await.unwrap();
        client.line_with("ended by the client").await;
        let (status, stderr) = client.end().await;
        assert_eq!(status, Some(0), "{stderr}");
    }
    until(|| (lab.gate.closed.lock().unwrap().len() == 3).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_without_input_goes_on() {
    let lab = Lab::start().await;
    let mut client = lab.spawn(&["-T", "-R", "80:localhost:1"]);
    drop(client.stdin.take());
    client.line_with("your service").await;
    let connection = lab.gate.connections.lock().unwrap()[0].clone();
    connection.console().line("still here");
    client.line_with("still here").await;
    assert!(connection.is_usable());
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_files_are_refused_with_a_sentence() {
    let lab = Lab::start().await;
    let command = lab.finish(lab.ssh_as("alice", "alice", &[]), &["127.0.0.1", "uname", "-a"]).await;
    assert_eq!(command.status.code(), Some(1));
    assert!(text(&command.stderr).contains("this server runs no commands"), "{}", text(&command.stderr));
    let mut sftp = lab.tool("sftp");
    sftp.arg("-P").arg(lab.address.port().to_string()).arg("-i").arg(lab.path("alice"));
    let sftp = lab.finish(sftp, &["alice@127.0.0.1"]).await;
    assert!(!sftp.status.success());
    assert!(text(&sftp.stderr).contains("transfers no files"), "{}", text(&sftp.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_into_the_servers_network_are_refused() {
    let lab = Lab::start().await;
    let web = web("secret").await;
    let output = lab.ssh(&["-W", &format!("127.0.0.1:{web}")]).await;
    assert!(!output.status.success());
    assert!(!text(&output.stdout).contains("secret"));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("administratively prohibited"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_is_announced_and_waits_for_streams() {
    let lab = Lab::start().await;
    let mut client = lab.spawn(&["-R", "80:localhost:1"]);
    client.line_with("your service").await;
    let server = lab.server.clone();
    let ending =
        tokio::spawn(
            async move { server.shutdown("the server restarts: connect again", Duration::from_secs(5)).await },
        );
    client.line_with("the server restarts").await;
    let (status, _) = client.end().await;
    assert_eq!(status, Some(1));
    crate::lab::soon(ending).await.unwrap();
    assert_eq!(lab.gate.closed.lock().unwrap().len(), 1);
    let refused = lab.ssh(&[]).await;
    assert_eq!(refused.status.code(), Some(255));
}
