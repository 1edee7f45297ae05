//! Third-party TLS programs, where they are installed.

use std::{
    path::Path,
    process::{Output, Stdio},
};

use tokio::process::Command;

use crate::support::{TestServer, has_program};

async fn curl(arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "*"])
        .args(arguments)
        .output()
        .await
        .unwrap()
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn curl_reaches_a_name_with_the_root_and_not_without() {
    if !has_program("curl") {
        return;
    }
    let server = TestServer::start("localhost").await;
    let (ca, port) = (server.ca_path(), server.addr.port());
    let ca = ca.to_str().unwrap();
    for name in ["wandering-shape-7752.localhost", "localhost"] {
        let url = format!("https://{name}:{port}/");
        let pin = format!("{name}:{port}:127.0.0.1");
        for more in [&["--http1.1"][..], &["--http1.1", "--tls-max", "1.2"]] {
            let output = curl(&[&["--cacert", ca, "--resolve", &pin, &url], more].concat()).await;
            assert!(output.status.success(), "{}", output_text(&output));
            assert_eq!(output_text(&output), "Http1");
        }
        let output = curl(&["--http1.1", "--resolve", &pin, &url]).await;
        assert_eq!(output.status.code(), Some(60), "the root is unknown: {}", output_text(&output));
    }
    let pin = format!("door.example:{port}:127.0.0.1");
    let output = curl(&["--cacert", ca, "--resolve", &pin, &format!("https://door.example:{port}/")]).await;
    assert_eq!(output.status.code(), Some(35), "the handshake is refused: {}", output_text(&output));
}

#[tokio::test]
async fn openssl_verifies_the_chain_and_is_refused_without_a_name() {
    if !has_program("openssl") {
        return;
    }
    let server = TestServer::start("localhost").await;
    let at = server.addr.to_string();
    let verify = ["-verify_return_error", "-CAfile", server.ca_path().to_str().unwrap()].map(str::to_owned);
    let client = async |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &at]).args(&verify).args(arguments).stdin(Stdio::null());
        command.output().await.unwrap()
    };
    let output = client(&["-servername", "x.localhost", "-verify_hostname", "x.localhost", "-alpn", "http/1.1"]).await;
    assert!(output_text(&output).contains("Verify return code: 0 (ok)"), "{}", output_text(&output));
    assert!(!client(&["-noservername"]).await.status.success());
    assert!(!client(&["-servername", "door.example"]).await.status.success());
    assert_eq!(server.certificates.stats().refused_without_name, 1);
}

/// Verifiers other than OpenSSL and webpki must also accept a root that is constrained to `localhost`.
#[tokio::test]
async fn other_verifiers_accept_the_bound_root() {
    let server = TestServer::start("localhost").await;
    let (ca, port) = (server.ca_path(), server.addr.port());
    if has_program("gnutls-cli") {
        let output = Command::new("gnutls-cli")
            .arg(format!("--x509cafile={}", ca.display()))
            .args([
                "--sni-hostname=x.localhost",
                "--verify-hostname=x.localhost",
                &format!("--port={port}"),
                "127.0.0.1",
            ])
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
    }
    if has_program("python3") {
        let output = python(&ca, port).await;
        assert!(output.status.success(), "{}", output_text(&output));
    }
}

async fn python(ca: &Path, port: u16) -> Output {
    let program = format!(
        "import socket, ssl\n\
         context = ssl.create_default_context(cafile={ca:?})\n\
         plain = socket.create_connection(('127.0.0.1', {port}))\n\
         context.wrap_socket(plain, server_hostname='x.localhost').close()\n"
    );
    Command::new("python3").args(["-c", &program]).output().await.unwrap()
}
