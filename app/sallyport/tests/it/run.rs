//! Several services in one process: `sallyport run`.

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
};

use serde_json::Value;

use crate::harness::{Home, Origin, Program, Up, curl, text, wait_until};

/// The file of the services, which only its owner may read, under its name as a whole.
pub(crate) fn write(home: &Home, content: &str) -> PathBuf {
    let path = home.dir.path().join("services.toml");
    let draft = path.with_extension("new");
    std::fs::write(&draft, content).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(draft, &path).unwrap();
    path
}

/// The command, which reads the file again when it is told to.
fn start(home: &Home, path: &Path) -> Program {
    Program::start(&mut home.command(&["run", path.to_str().unwrap(), "-o", "json", "--no-watch"]))
}

pub(crate) fn service(more: &str, origin: SocketAddr) -> String {
    format!("[[service]]\n{more}\nhost = \"127.0.0.1\"\nport = {}\n", origin.port())
}

/// The events of this kind so far, of this service or of any.
pub(crate) fn events(program: &Program, kind: &str, service: Option<&str>) -> Vec<Value> {
    let lines = program.output();
    let events = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["event"] == kind && service.is_none_or(|service| event["service"] == service)).collect()
}

/// The host of a service that was attached at least this many times.
pub(crate) fn host(program: &Program, service: &str, times: usize) -> String {
    let attached = wait_until(&format!("{service} to be attached"), || {
        let mut attached = events(program, "attached", Some(service));
        if attached.len() < times { None } else { attached.pop() }
    });
    let url = attached["url"].as_str().unwrap().to_owned();
    url.strip_prefix("https://").unwrap().split(':').next().unwrap().to_owned()
}

fn metric(up: &Up, name: &str) -> String {
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default().to_owned();
    line.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn services_of_every_kind_share_a_session_and_live_lines_name_them() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, lasting) = home.socket(&[]);
    let (shop, other) = (Origin::start("shop"), Origin::start("other"));
    let file = service("name = \"shop\"", shop.address)
        + &service(&format!("socket-id = \"{socket}\"\nname = \"other\"\nconnect_timeout = \"5s\""), other.address);
    let path = write(&home, &format!("keepalive = \"5s\"\n{file}"));

    let checked = home.json(&["run", "--check", path.to_str().unwrap()]);
    let names: Vec<_> =
        checked.as_array().unwrap().iter().map(|service| service["service"].as_str().unwrap()).collect();
    assert_eq!(names, ["shop", "other"]);
    assert_eq!(home.json(&["socket", "ls"]).as_array().unwrap().len(), 1, "judging makes nothing");

    let run = start(&home, &path);
    let temporary = host(&run, "shop", 1);
    assert_eq!(host(&run, "other", 1), lasting);
    assert!(up.curl(&temporary, "/a", &[]).body.starts_with("shop GET /a"));
    assert!(up.curl(&lasting, "/b", &[]).body.starts_with("other GET /b"));
    for (service, target) in [("shop", "/a"), ("other", "/b")] {
        wait_until("the line of the request", || {
            events(&run, "request", Some(service)).into_iter().find(|event| event["request"]["target"] == target)
        });
    }
    assert_eq!(metric(&up, "sallyport_edge_sessions"), "1");
    assert_eq!(metric(&up, "sallyport_edge_tunnels_up"), "2");

    let drained = run.stop();
    assert_eq!(drained.code(), Some(0), "{}", run.output());
    let left = home.json(&["socket", "ls"]);
    assert_eq!(left.as_array().unwrap().len(), 2, "{left}");
    assert_eq!(home.json(&["tunnel", "ls", &socket]), serde_json::json!([]), "its tunnel was for the time it ran");
    assert_eq!(home.json(&["tunnel", "ls", "--name", "SHOP"]), serde_json::json!([]), "and so was this one");

    let again = start(&home, &path);
    assert_eq!(host(&again, "shop", 1), temporary, "the name has its public name again");
    assert!(up.curl(&temporary, "/a", &[]).body.starts_with("shop GET /a"));
}

#[test]
fn a_reload_changes_what_differs_and_disturbs_nothing_else() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origins = ["still", "before", "after", "new", "gone"].map(Origin::start);
    let [still, before, after, new, gone] = &origins;
    let of = |services: &[(&str, &Origin)]| {
        services.iter().map(|(name, origin)| service(&format!("name = \"{name}\""), origin.address)).collect::<String>()
    };
    let path = write(&home, &of(&[("still", still), ("moved", before), ("gone", gone)]));
    let run = start(&home, &path);
    let [still_host, moved_host, gone_host] = ["still", "moved", "gone"].map(|name| host(&run, name, 1));
    assert!(up.curl(&moved_host, "/", &[]).body.starts_with("before"));
    assert_eq!(up.curl(&gone_host, "/", &[]).status, 200);
    let (url, ca) = (up.url(&still_host, "/trickle/20"), up.ca.clone());
    let download = thread::spawn(move || curl(&ca, &url, &[]));
    wait_until("the request to reach the origin", || (still.count() == 1).then_some(()));

    write(&home, &of(&[("still", still), ("moved", after), ("new", new)]));
    run.signal("HUP");
    let event = wait_until("the reload", || events(&run, "reloaded", None).pop());
    assert_eq!(
        (&event["cause"], &event["added"], &event["changed"], &event["removed"]),
        (&"signal".into(), &serde_json::json!(["new"]), &serde_json::json!(["moved"]), &serde_json::json!(["gone"]))
    );
    let new_host = host(&run, "new", 1);
    assert!(up.curl(&new_host, "/", &[]).body.starts_with("new"));
    // The name stays, and idle connections to the former service are not used any more.
    host(&run, "moved", 2);
    assert!(up.curl(&moved_host, "/", &[]).body.starts_with("after"));
    assert_eq!(up.curl(&gone_host, "/", &[]).status, 503, "its name stays, and nothing serves it");
    let response = download.join().unwrap();
    assert_eq!((response.status, response.body.len()), (200, 100), "{}", response.head);
    assert_eq!(events(&run, "attached", Some("still")).len(), 1);

    // A file that cannot be used changes nothing.
    for (bad, expected) in [
        ("[[service]]\nport = 0", "--port"),
        ("[[service", "services.toml:1"),
        ("[[service]]\nport = 1\nsocket-id = \"calm-bay-1000\"", "no such socket"),
        ("keepalive = \"7s\"\n[[service]]\nport = 1", "by a restart only"),
    ] {
        let before = events(&run, "not-reloaded", None).len();
        write(&home, bad);
        run.signal("HUP");
        let refused = wait_until("the refusal", || events(&run, "not-reloaded", None).into_iter().nth(before));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{bad}: {message}");
        assert!(up.curl(&new_host, "/", &[]).body.starts_with("new"));
    }
    // What a failing file has made is removed.
    write(&home, "[[service]]\nport = 1\nname = \"fresh\"\n[[service]]\nport = 1\nsocket-id = \"calm-bay-1000\"");
    let before = events(&run, "not-reloaded", None).len();
    run.signal("HUP");
    wait_until("the refusal", || events(&run, "not-reloaded", None).into_iter().nth(before));
    let names = |sockets: &Value| {
        let name = |socket: &Value| socket["name"].as_str().unwrap().to_owned();
        sockets.as_array().unwrap().iter().map(name).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(&home.json(&["socket", "ls"])), ["gone", "moved", "new", "still"].map(str::to_owned).into());
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
    let left = home.json(&["socket", "ls"]);
    assert!(left.as_array().unwrap().iter().all(|socket| socket["tunnels_total"] == 0), "{left}");
}

#[test]
fn a_credential_needs_no_login_and_all_services_come_back_after_a_restart_of_the_edge() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Origin::start("origin");
    let mut hosts = Vec::new();
    let file: String = (0..20)
        .map(|_| {
            let (socket, host) = home.socket(&[]);
            let tunnel = home.json(&["tunnel", "create", &socket]);
            let (id, credential) = (tunnel["id"].as_str().unwrap(), tunnel["credential"].as_str().unwrap());
            let keys = format!("socket-id = \"{host}\"\ntunnel-id = \"{id}\"\ntunnel-credential = \"{credential}\"");
            hosts.push(host);
            service(&keys, origin.address)
        })
        .collect();
    let path = write(&home, &file);
    assert!(home.run(&["logout"]).status.success());
    let run = start(&home, &path);
    for name in &hosts {
        assert_eq!(&host(&run, name, 1), name);
    }
    let listen = format!("127.0.0.1:{}", up.port);
    up.program.signal("KILL");
    up.program.ended();
    let data = home.data();
    let args = ["up", "--listen", &listen, "--listen-http", "none", "--data", data.to_str().unwrap()];
    let again = Program::start(&mut home.command(&args));
    again.wait_for("ready");
    for name in &hosts {
        host(&run, name, 2);
        assert_eq!(up.curl(name, "/", &[]).status, 200);
    }
    assert_eq!(run.stop().code(), Some(0), "{}", run.output());
}

#[test]
fn a_service_that_is_lost_is_named_and_the_others_go_on_until_none_is_left() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Origin::start("origin");
    let sockets = [home.socket(&[]), home.socket(&[])];
    let file: String = sockets
        .iter()
        .map(|(id, host)| service(&format!("socket-id = \"{id}\"\nname = \"{host}\""), origin.address))
        .collect();
    let path = write(&home, &file);
    let run = Program::start(&mut home.command(&["run", path.to_str().unwrap()]));
    let [(first, first_host), (second, second_host)] = &sockets;
    for host in [first_host, second_host] {
        run.wait_for(&format!("{host}  https://{host}"));
    }
    assert!(home.run(&["socket", "delete", first]).status.success());
    run.wait_for(&format!("note: {first_host}: removed by the edge"));
    assert_eq!(up.curl(second_host, "/", &[]).status, 200);
    // The file is missing: a reload reports that, and changes nothing.
    run.signal("HUP");
    run.wait_for(&format!("service {first_host:?}: there is no such socket"));
    assert!(home.run(&["socket", "delete", second]).status.success());
    assert_eq!(run.ended().code(), Some(4), "{}", run.output());
}

#[test]
fn a_file_that_cannot_be_used_is_refused_before_anything_is_done() {
    let home = Home::new();
    let refused = |arguments: &[&str], expected: &str, code: i32| {
        let output = home.run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected) && !stderr.contains("panicked"), "{expected:?} is not in: {stderr}");
    };
    refused(&["run"], "<FILE>", 2);
    refused(&["run", "/nowhere/services.toml"], "cannot read /nowhere/services.toml", 2);
    for (bad, expected) in [
        ("", "services.toml:1: there is no service"),
        ("[[service]]\nname = \"shop\"\nport = 70000", "service \"shop\": invalid value '70000' for '--port <PORT>'"),
        ("[[service]]\nname = \"shop\"\nport = 80\nprt = 1", "service \"shop\": unexpected argument '--prt' found"),
    ] {
        let path = write(&home, bad);
        let path = path.to_str().unwrap();
        refused(&["run", path], expected, 2);
        refused(&["run", "--check", path], expected, 2);
        refused(&["run", path, "-o", "json"], "\"kind\":\"usage\"", 2);
    }
    let path =
        write(&home, "[[service]]\nport = 80\nprotected = true\nusername = \"a\"\npassword = \"a long enough one\"");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(&["run", path.to_str().unwrap()], "every user of this machine can read the password", 2);

    // The API's refusal names the service, and what was made before is removed.
    let _up = home.up(&[]);
    let path = write(&home, "[[service]]\nport = 80");
    refused(&["run", path.to_str().unwrap()], "sallyport login", 3);
    home.account();
    let path = write(&home, "[[service]]\nport = 80\n[[service]]\nsocket-id = \"calm-bay-1000\"\nport = 81");
    refused(&["run", path.to_str().unwrap()], "service \"calm-bay-1000\": there is no such socket", 4);
    assert_eq!(home.json(&["socket", "ls"]), serde_json::json!([]));
}
