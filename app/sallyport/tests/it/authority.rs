//! The replacement of an installation's authorities.

use std::{fs, path::Path};

use crate::{
    database::createdb,
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, edges},
    harness::{Home, curl, text, wait_until},
    postgres,
};

/// Whether a client with this root is answered at this port.
fn is_trusted(ca: &Path, port: u16) -> bool {
    let host = format!("api.{DOMAIN}");
    curl(ca, &format!("https://{host}:{port}/v1/info"), &[]).status == 200
}

#[test]
fn authorities_are_replaced_and_edges_follow_or_join_anew() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    let mut edge = EdgeHere::join(&home, "eu-1", "eu");
    let (data, former) = (home.data(), home.dir.path().join("former.pem"));
    let (ca, data) = (data.join("ca.pem"), data.to_str().unwrap());
    fs::copy(&ca, &former).unwrap();
    let rotate = |which: &'static str| ["authority", "rotate", which, "--data", data];
    let refused = home.run(&rotate("clients"));
    assert!(!refused.status.success() && text(&refused.stderr).contains("is in use by process"), "{refused:?}");

    // Clients trust another root: the edge gets a certificate of it by itself.
    assert!(is_trusted(&former, edge.port));
    assert!(control.program.take().unwrap().stop().success());
    let made = home.json(&rotate("clients"));
    assert!(made["fingerprint"].as_str().unwrap().starts_with("sha256:"), "{made}");
    assert_ne!(fs::read(&ca).unwrap(), fs::read(&former).unwrap());
    control.resume(&home);
    wait_until("the edge to have a certificate of the new root", || is_trusted(&ca, edge.port).then_some(()));
    assert!(is_trusted(&ca, control.ports.0) && !is_trusted(&former, control.ports.0));
    assert!(!is_trusted(&former, edge.port));
    assert!(home.run(&["edge", "ls"]).status.success());

    // Machines trust another root: the edge is refused, keeps serving, and joins again.
    assert!(control.program.take().unwrap().stop().success());
    home.json(&rotate("machines"));
    control.resume(&home);
    wait_until("the edge to be untrusted", || {
        (edge.get(&home, &format!("api.{DOMAIN}"), "/v1/info").0 == 503).then_some(())
    });
    assert_eq!(edge.get(&home, &format!("api.{DOMAIN}"), "/readyz").0, 200);
    edge.kill();
    assert!(home.run(&["edge", "rm", "eu-1"]).status.success());
    let again = EdgeHere::join(&home, "eu-1b", "eu");
    wait_until("the edge is there again", || {
        edges(&home).iter().any(|edge| edge["name"] == "eu-1b" && edge["state"] == "up").then_some(())
    });
    assert!(is_trusted(&ca, again.port));
}

#[test]
fn an_authority_in_the_database_is_replaced_there() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let database = createdb(server, "authority_of_controls");
    let mut control = ControlHere::start_with(&home, &bus, &["--database", &database]);
    home.account();
    let (data, former) = (home.data(), home.dir.path().join("former.pem"));
    let (ca, data) = (data.join("ca.pem"), data.to_str().unwrap());
    fs::copy(&ca, &former).unwrap();
    assert!(control.program.take().unwrap().stop().success());
    let without = home.run(&["authority", "rotate", "clients", "--data", data]);
    assert!(without.status.code() == Some(2) && text(&without.stderr).contains("--database"), "{without:?}");
    home.json(&["authority", "rotate", "clients", "--data", data, "--database", &database]);
    control.resume(&home);
    assert!(is_trusted(&ca, control.ports.0) && !is_trusted(&former, control.ports.0));
    assert!(home.run(&["socket", "ls"]).status.success(), "the account is as it was");
}

#[test]
fn up_has_another_root_too_and_refuses_what_is_none() {
    let home = Home::new();
    let up = home.up(&[]);
    assert!(up.program.stop().success());
    let data = home.data();
    let data = data.to_str().unwrap();
    let former = fs::read(home.data().join("ca.pem")).unwrap();
    home.json(&["authority", "rotate", "clients", "--data", data]);
    assert_ne!(fs::read(home.data().join("ca.pem")).unwrap(), former);
    let none = home.run(&["authority", "rotate", "machines", "--data", data]);
    assert!(none.status.code() == Some(4) && text(&none.stderr).contains("there is no authority"), "{none:?}");
    let up = home.up(&[]);
    assert_eq!(up.curl("api.localhost", "/v1/info", &[]).status, 200);
}
