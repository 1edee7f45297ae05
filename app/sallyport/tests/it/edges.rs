//! Control and two edges over a real NATS, each a process.

use std::{process::Command, time::Instant};

use serde_json::Value;

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, connect, edges, token},
    harness::{Home, Origin, Program, text, wait_until},
    tcp::free_port,
};

#[test]
fn edges_join_serve_and_go_on_without_bus_and_control() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    let (mut a, b) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    wait_until("both edges are there", || {
        let edges = edges(&home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
    let (socket, host) = home.socket(&[]);
    wait_until("the socket is known at both", || (a.knows(&home, &host) && b.knows(&home, &host)).then_some(()));
    // Clients of an edge cannot send the edges' own requests through it.
    for name in ["api", "login"] {
        for path in ["join", "renew", "world", "tunnel", "ssh/begin", "ssh/forward", "ssh/ended"] {
            let asked = format!("/node/v1/{path}");
            let forged = ["--json", "{}", "--header", "sallyport-client: 127.0.0.1:1"];
            for more in [&forged[..2], &forged[..]] {
                let response = a.curl(&home, &format!("{name}.{DOMAIN}"), &asked, more);
                assert_eq!(response.status, 404, "{name}: {asked}: {}", response.body);
            }
        }
    }

    // A tunnel at an edge is served there, and listed at that edge.
    let origin = Origin::start("origin");
    let token = token(&home);
    let _at_a = connect(&home, &a, &socket, &origin, &["--token", &token]);
    let (status, body) = a.get(&home, &host, "/hello");
    assert!(status == 200 && body.starts_with("origin GET /hello"), "{status} {body}");
    wait_until("the tunnel is known at control, and where it is held", || {
        let tunnels = home.json(&["tunnel", "ls", &socket]);
        let holders = tunnels[0]["holders"].as_array()?;
        holders.iter().any(|holder| holder["edge"] == "eu-1" && holder["region"] == "eu").then_some(())
    });
    let at_a = edges(&home).into_iter().find(|edge| edge["name"] == "eu-1").unwrap();
    assert_eq!((at_a["tunnels"].as_u64(), at_a["region"].as_str()), (Some(1), Some("eu")), "{at_a}");

    // The bus dies: both edges serve, and report it; a socket that is made meanwhile works after the bus is back.
    bus.kill();
    wait_until("the loss is reported", || {
        let (status, health) = a.get(&home, &format!("api.{DOMAIN}"), "/healthz");
        (status == 200 && health.contains("bus: away")).then_some(())
    });
    assert_eq!(a.get(&home, &host, "/").0, 200);
    let (_, meanwhile) = home.socket(&[]);
    assert!(!b.knows(&home, &meanwhile));
    bus.resume();
    wait_until("what was made meanwhile is known", || {
        (a.knows(&home, &meanwhile) && b.knows(&home, &meanwhile)).then_some(())
    });

    // Control dies: edges serve what they know, and report what is not possible.
    control.program = None;
    assert_eq!(a.get(&home, &host, "/").0, 200);
    let (status, body) = a.get(&home, &format!("api.{DOMAIN}"), "/v1/info");
    assert!(status == 503 && body.contains("control cannot be reached"), "{status} {body}");
    // An edge starts from its disk without control and bus, and admits a connector with a known credential.
    bus.kill();
    a.kill();
    a.start(&home, &[]);
    assert!(a.knows(&home, &host), "the configuration is on disk");
    wait_until("the connector is admitted again", || (a.get(&home, &host, "/").0 == 200).then_some(()));
    bus.resume();
    control.resume(&home);
    wait_until("all is as before", || {
        edges(&home).iter().find(|edge| edge["name"] == "eu-1" && edge["tunnels"] == 1).map(|_| ())
    });

    // An edge is killed: its tunnels are gone when its lease ends.
    a.kill();
    let killed = Instant::now();
    wait_until("the end of the edge is detected", || {
        edges(&home).iter().any(|edge| edge["name"] == "eu-1" && edge["state"] == "down").then_some(())
    });
    println!("a killed edge is down after {:?}", killed.elapsed());
    let tunnels = home.json(&["tunnel", "ls", &socket]);
    assert!(tunnels.as_array().unwrap().iter().all(|tunnel| tunnel["edge"] != "eu-1"), "{tunnels}");
}

#[test]
fn a_refused_join_has_its_reason() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let _first = EdgeHere::join(&home, "eu-1", "eu");
    let token = |more: &[&str]| {
        let made = home.json(&[&["edge", "token", "create"], more].concat());
        made["token"].as_str().unwrap().to_owned()
    };
    let data = home.dir.path().join("refused");
    let refused = |token: &str, more: &[&str], code: i32, expected: &str| {
        let mut args = vec!["edge", "--join", token, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        args.extend(more);
        let output = home.run(&args);
        let printed = text(&output.stderr);
        assert!(
            output.status.code() == Some(code) && printed.contains(expected),
            "{args:?}: {:?} {printed}",
            output.status
        );
    };
    let good = token(&[]);
    refused(&good, &["--name", "eu-1", "--region", "eu"], 5, "there is already an edge named eu-1");
    refused(&good, &[], 5, "names a region");
    refused(&good, &["--region", "EU"], 2, "is no name of a region");
    // The token is still valid, because those attempts failed.
    let mut second = EdgeHere::new(&home, "second", "127.0.0.1");
    second.start(&home, &["--join", &good, "--region", "eu"]);
    refused(&good, &["--region", "eu"], 5, "was used before, by the edge eu-2");
    let stolen = good.replacen("spe_", "spe_A", 1);
    let stolen = format!("{}{}", &stolen[..47], &stolen[48..]);
    refused(&stolen, &["--region", "eu"], 5, "is unknown");
    let (front, digits) = good.rsplit_once('#').unwrap();
    let other = format!("{front}#{}", if digits.starts_with('0') { "1" } else { "0" }.to_owned() + &digits[1..]);
    refused(&other, &["--region", "eu"], 6, "not the one that the join token names");
    refused("nonsense", &["--region", "eu"], 2, "this is no join token");
    refused(&token(&["--region", "us"]), &["--region", "eu"], 5, "is for the region us");
    let nobody = format!("{}@127.0.0.1:{}#{digits}", good.split('@').next().unwrap(), free_port());
    refused(&nobody, &["--region", "eu"], 6, "no control answers");

    // A removed edge gets nothing more.
    assert!(home.run(&["edge", "rm", "eu-2"]).status.success());
    assert_eq!(edges(&home).len(), 1);
    let (status, body) = second.get(&home, &format!("api.{DOMAIN}"), "/v1/info");
    assert!(
        status == 503 && body.contains("the installation removed the edge of this request: use another edge"),
        "{status} {body}"
    );
    // Joins, and attempts with a used token, are recorded.
    let log = text(&home.run(&["audit", "--since", "1h", "-o", "json"]).stdout);
    let joins: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let joins: Vec<_> = joins.iter().filter(|event| event.to_string().contains("edge.join")).collect();
    let has = |outcome: &str| {
        let words = [format!("\"{outcome}\""), "\"eu-2\"".to_owned()];
        joins.iter().any(|event| words.iter().all(|word| event.to_string().contains(word)))
    };
    assert!(has("done") && has("refused"), "{joins:?}");
    // Only the owner of the installation sees edges.
    let output = home.run(&["account", "create", "--name", "Other", "--email", "other@example.com"]);
    assert!(output.status.success());
    assert!(home.run(&["login", "--email", "other@example.com"]).status.success());
    let output = home.run(&["edge", "ls"]);
    assert!(output.status.code() == Some(3) && text(&output.stderr).contains("owns this installation"), "{output:?}");
}

#[test]
fn a_control_that_cannot_start_reports_the_reason() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "authorization { user: sallyport, password: right }") else { return };
    let data = home.data();
    let url = bus.url();
    let args = |domain: &'static str| {
        vec![
            "control",
            "--domain",
            domain,
            "--data",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--listen-edges",
            "127.0.0.1:0",
            "--bus",
            &url,
        ]
    };
    let output = home.run(&args(DOMAIN));
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("refuses the credentials"), "{output:?}");
    let mut wrong = home.command(&args(DOMAIN));
    let output = wrong.env("SALLYPORT_BUS_USER", "sallyport").env("SALLYPORT_BUS_PASSWORD", "no").output().unwrap();
    let printed = text(&output.stderr);
    assert!(
        !output.status.success() && printed.contains("refuses the credentials") && !printed.contains("right"),
        "{printed}"
    );
    let output = home.run(&args("localhost"));
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("two labels"), "{output:?}");
}

/// Begins this many logins over TLS at a port, from two addresses, and sends a byte of each now and then.
const SLOW_LOGINS: &str = r#"
import asyncio, ssl, sys
port, name, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
trust = ssl.create_default_context()
trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
head = f"POST /v1/login HTTP/1.1\r\nHost: {name}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
async def one(number):
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trust, server_hostname=name, local_addr=(f"127.0.1.{1 + number % 2}", 0))
    writer.write(head.encode())
    await writer.drain()
    return writer
async def main():
    writers = await asyncio.gather(*(one(number) for number in range(count)))
    print("all have begun", flush=True)
    while True:
        await asyncio.sleep(1)
        for writer in writers:
            writer.write(b" ")
asyncio.run(main())
"#;

#[test]
fn slow_clients_take_no_capacity_from_other_requests_to_control() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let edge = EdgeHere::join(&home, "eu-1", "eu");
    let api = format!("api.{DOMAIN}");
    let slow = Program::start(Command::new("python3").args(["-c", SLOW_LOGINS, &edge.port.to_string(), &api, "300"]));
    slow.wait_for("all have begun");
    // They are dropped after ten seconds; these requests are answered while all of them run.
    for _ in 0..3 {
        let response = edge.curl(&home, &api, "/v1/info", &["--max-time", "6"]);
        assert_eq!(response.status, 200, "{}", response.body);
    }
}
