//! TLS sockets by real clients: a database driver, curl, openssl.

use std::{
    net::SocketAddr,
    process::{Command, Output, Stdio},
};

use crate::{
    harness::{Home, Up, text},
    protocols::{client, tool},
    tcp::{Postgres, free_port, id, nginx, socket, up_with_port},
};

/// The output of openssl's client for a handshake with this port.
fn s_client(up: &Up, port: u16, more: &[&str]) -> Output {
    Command::new("openssl")
        .args(["s_client", "-brief", "-verify_return_error", "-connect", &format!("127.0.0.1:{port}"), "-CAfile"])
        .arg(&up.ca)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_database_driver_speaks_tls_at_once_with_the_edges_certificate() {
    let Some(python) = tool("psycopg") else { return };
    let Some(postgres) = Postgres::start() else { return };
    let home = Home::new();
    let (up, own_port) = up_with_port(&home, &[]);
    let socket = socket(&home, "tls", &["--alpn", "postgresql"]);
    let host = socket["dns_name"].as_str().unwrap();
    let _connector = home.connector(id(&socket), postgres.address, &[]);
    for port in [up.port, own_port] {
        let output = Command::new(&python)
            .args([&client("postgres_direct.py"), up.ca.to_str().unwrap(), host, &port.to_string()])
            .output()
            .unwrap();
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{printed}{}", text(&output.stderr));
        assert!(printed.contains("50000 rows came back"), "{printed}");
    }
}

#[test]
fn the_edge_ends_tls_for_clients_of_every_age() {
    let Some(postgres) = Postgres::start() else { return };
    let home = Home::new();
    let (up, own_port) = up_with_port(&home, &[]);
    let socket = socket(&home, "tls", &["--alpn", "postgresql"]);
    let host = socket["dns_name"].as_str().unwrap();
    let _connector = home.connector(id(&socket), postgres.address, &[]);
    for (port, more, good) in [
        (up.port, &["-servername", host, "-tls1_2"][..], true),
        (up.port, &["-servername", host, "-alpn", "postgresql"], true),
        (up.port, &["-servername", host, "-alpn", "h2"], false),
        (up.port, &["-servername", "elsewhere.example"], false),
        (up.port, &["-noservername"], false),
        (own_port, &["-noservername", "-verify_hostname", host], true),
    ] {
        let output = s_client(&up, port, more);
        let printed = text(&output.stderr);
        assert_eq!(output.status.success() && printed.contains("Verification: OK"), good, "{more:?}: {printed}");
    }
    let printed = text(&s_client(&up, up.port, &["-servername", "elsewhere.example"]).stderr);
    assert!(printed.contains("unrecognized name"), "{printed}");
    let printed = text(&s_client(&up, up.port, &["-servername", host, "-alpn", "h2"]).stderr);
    assert!(printed.contains("no application protocol"), "{printed}");
}

#[test]
fn with_passthrough_curl_sees_the_certificate_of_the_service() {
    let home = Home::new();
    let (up, own_port) = up_with_port(&home, &[]);
    let socket = socket(&home, "tls", &["--passthrough"]);
    let host = socket["dns_name"].as_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (key, certificate) = (dir.path().join("key.pem"), dir.path().join("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=the service", "-addext", &format!("subjectAltName=DNS:{host}"), "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let port = free_port();
    let http = format!(
        "server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {}; ssl_certificate_key {}; \
         location / {{ return 200 \"$ssl_server_name over $server_protocol\"; }} }}",
        certificate.display(),
        key.display()
    );
    let Some(_nginx) = nginx(dir.path(), &http) else { return };
    let _connector = home.connector(id(&socket), SocketAddr::from(([127, 0, 0, 1], port)), &[]);
    for port in [up.port, own_port] {
        let response = crate::harness::curl(&certificate, &format!("https://{host}:{port}/"), &["--http2"]);
        assert_eq!((response.status, response.body.as_str()), (200, &format!("{host} over HTTP/2.0")[..]));
    }
    // The edge's own certificate is not what is shown.
    assert!(!text(&s_client(&up, up.port, &["-servername", host]).stderr).contains("Verification: OK"));
}
