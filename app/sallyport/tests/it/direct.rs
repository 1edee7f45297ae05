//! Direct origins: real servers that the edge dials itself, without a connector.

use std::{collections::HashMap, path::Path, process::Command};

use crate::{
    harness::{Home, Origin, Program, text},
    tcp::{connect, free_port, id, nginx, ran, socket, up_with_port},
};

const LOOPBACK: [&str; 2] = ["--direct-origins", "127.0.0.0/8"];

/// nginx that answers with its name, on this port.
pub(crate) fn named(dir: &Path, port: u16, name: &str) -> Option<Program> {
    let server = nginx(dir, &format!("server {{ listen 127.0.0.1:{port}; location / {{ return 200 {name}; }} }}"))?;
    drop(connect(port));
    Some(server)
}

#[test]
fn servers_without_a_connector_share_with_a_tunnel_and_one_that_is_killed_costs_no_request() {
    let (home, dirs) = (Home::new(), [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]);
    let (one, two) = (free_port(), free_port());
    let Some(first) = named(dirs[0].path(), one, "one") else { return };
    let Some(_second) = named(dirs[1].path(), two, "two") else { return };
    let up = home.up(&LOOPBACK);
    home.account();
    let (socket, host) = home.socket(&[]);
    let addresses = [format!("127.0.0.1:{one}"), format!("localhost:{two}")];
    for address in &addresses {
        home.json(&["socket", "origin", "add", &socket, address]);
    }
    let tunnel = Origin::start("tunnel");
    let _connector = home.connector(&socket, tunnel.address, &[]);
    let ask = || {
        let response = up.curl(&host, "/", &[]);
        assert_eq!(response.status, 200, "{}", response.body);
        response.body.split(' ').next().unwrap().trim().to_owned()
    };
    let count = |requests: usize| {
        let mut counts = HashMap::new();
        (0..requests).for_each(|_| *counts.entry(ask()).or_insert(0) += 1);
        counts
    };
    assert_eq!(count(12), HashMap::from([("one".into(), 4), ("two".into(), 4), ("tunnel".into(), 4)]));

    // Like SIGKILL: its port refuses from now on.
    drop(first);
    assert_eq!(count(12), HashMap::from([("two".into(), 6), ("tunnel".into(), 6)]));
    home.json(&["socket", "origin", "edit", &socket, &addresses[1], "--weight", "0"]);
    assert_eq!(count(4), HashMap::from([("tunnel".into(), 4)]));
    home.json(&["socket", "origin", "edit", &socket, &addresses[1], "--weight", "300"]);
    assert_eq!(count(8), HashMap::from([("two".into(), 6), ("tunnel".into(), 2)]));

    home.json(&["socket", "origin", "rm", &socket, &addresses[0]]);
    let left = home.json(&["socket", "origin", "ls", &socket]);
    assert_eq!((left.as_array().unwrap().len(), left[0]["address"].as_str()), (1, Some(addresses[1].as_str())));
    let output = up.program.output();
    assert!(output.contains("a direct origin is not reached") && output.contains("direct_origin="), "{output}");
}

#[test]
fn servers_learn_the_clients_address_by_the_proxy_protocol() {
    let (home, dir) = (Home::new(), tempfile::tempdir().unwrap());
    let server = free_port();
    let http = format!(
        "server {{ listen 127.0.0.1:{server} proxy_protocol; \
         location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_server_port\"; }} }}"
    );
    let Some(_nginx) = nginx(dir.path(), &http) else { return };
    drop(connect(server));
    let (_up, port) = up_with_port(&home, &LOOPBACK);
    let socket = socket(&home, "tcp", &[]);
    home.json(&["socket", "origin", "add", id(&socket), &format!("127.0.0.1:{server}")]);
    let seen = || {
        drop(connect(port));
        let url = format!("http://127.0.0.1:{port}/");
        ran(Command::new("curl").args(["-sS", "--max-time", "60", "--interface", "127.0.0.9", &url]))
    };
    for version in ["v1", "v2"] {
        home.json(&["socket", "edit", id(&socket), "--proxy-protocol", version]);
        assert_eq!(seen(), format!("127.0.0.9 {port}"), "{version}");
    }
    // HAProxy in place of nginx, if installed.
    let haproxy = Path::new("/usr/sbin/haproxy");
    if !haproxy.is_file() {
        return;
    }
    let behind = free_port();
    let config = format!(
        "defaults\n mode http\n timeout connect 9s\n timeout client 9s\n timeout server 9s\n\
         frontend f\n bind 127.0.0.1:{behind} accept-proxy\n \
         http-request return status 200 content-type text/plain lf-string %[src]\n"
    );
    let file = dir.path().join("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let _haproxy = Program::start(Command::new(haproxy).args(["-db", "-f"]).arg(&file));
    drop(connect(behind));
    let from = format!("127.0.0.1:{server}");
    home.json(&["socket", "origin", "edit", id(&socket), &from, "--address", &format!("127.0.0.1:{behind}")]);
    assert_eq!(seen(), "127.0.0.9");
}

#[test]
fn what_cannot_be_dialed_is_refused_in_a_sentence() {
    let home = Home::new();
    let _up = home.up(&LOOPBACK);
    home.account();
    let (socket, _) = home.socket(&[]);
    let refused = |args: &[&str], code: i32, says: &str| {
        let output = home.run(&[&["socket", "origin"][..], args].concat());
        let printed = text(&output.stderr);
        assert!(output.status.code() == Some(code) && printed.contains(says), "{args:?}: {printed}");
    };
    refused(&["add", &socket, "10.0.0.7:80"], 5, "in none of the networks that edges may dial here");
    refused(&["add", &socket, "169.254.169.254:80"], 5, "--direct-origins");
    refused(&["add", &socket, "127.1:80"], 2, "four numbers");
    refused(&["add", &socket, "127.0.0.1"], 2, "expected HOST:PORT");
    refused(&["add", &socket, "127.0.0.1:80", "--region", "Mars One"], 2, "no name of a region");
    refused(
        &["add", &socket, "127.0.0.1:80", "--origin-pin", &format!("sha256:{}", "00".repeat(32))],
        5,
        "https sockets alone",
    );
    refused(&["add", "nobody-home-1000", "127.0.0.1:80"], 4, "no such socket");
    home.json(&["socket", "origin", "add", &socket, "127.0.0.1:80"]);
    refused(&["add", &socket, "127.0.0.1:80"], 5, "already");
    refused(&["edit", &socket, "127.0.0.1:80"], 2, "nothing to change");
    refused(&["edit", &socket, "127.0.0.1:81", "--weight", "1"], 4, "has no direct origin 127.0.0.1:81");
    refused(&["rm", &socket, "127.0.0.1:81"], 4, "lists those that it has");
    let dialed = home.json(&["socket", "edit", &socket, "--dial", "eu=20,us=80"]);
    assert_eq!(dialed["regions"]["eu"]["dial"], 20);
    let output = home.run(&["socket", "edit", &socket, "--dial", "us=off"]);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(printed.contains("eu 20 %, us 80 % -> eu 20 %\n") && printed.contains("one machine"), "{printed}");
    let output = home.run(&["socket", "edit", &socket, "--dial", "eu=101"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("0 to 100 percent"));

    let other = Home::new();
    let _up = other.up(&[]);
    other.account();
    let (socket, _) = other.socket(&[]);
    let output = other.run(&["socket", "origin", "add", &socket, "127.0.0.1:80"]);
    assert!(output.status.code() == Some(3) && text(&output.stderr).contains("the operator has to name"));
}
