//! `sallyport audit`: connections in the audit log, and the detection of changes of the log.

use std::{
    io::{Read as _, Write as _},
    net::{TcpStream, UdpSocket},
};

use serde_json::Value;

use crate::{
    harness::{Home, Origin, Program, text, wait_until},
    tcp::{id, socket, up_with_port},
};

fn events(home: &Home, more: &[&str]) -> Vec<Value> {
    let output = home.run(&[&["audit", "--since", "1h", "-o", "json"][..], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn one_command_lists_the_connections() {
    let home = Home::new();
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!("udp://{}", syslog.local_addr().unwrap());
    let (up, port) = up_with_port(&home, &["--audit", "all", "--audit-syslog", &target]);
    let tcp = socket(&home, "tcp", &[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(id(&tcp), origin.address, &[]);
    let follower = Program::start(&mut home.command(&["audit", "--follow", "--kind", "flow"]));

    // A lasting connection is listed, and ended.
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"GET /trickle/600 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    let flows = home.json(&["flow", "ls"]);
    assert_eq!((flows.as_array().unwrap().len(), flows[0]["transport"].as_str()), (1, Some("tcp")), "{flows}");
    let flow = flows[0]["id"].as_str().unwrap();
    let shown = text(&home.run(&["flow", "ls"]).stdout);
    assert!(shown.contains(flow) && shown.contains(&client.local_addr().unwrap().to_string()), "{shown}");
    assert!(home.run(&["flow", "kill", flow]).status.success());
    let mut rest = Vec::new();
    let ended = client.read_to_end(&mut rest);
    assert!(ended.is_err(), "a client must not take it for complete");
    assert_eq!(home.run(&["flow", "kill", flow]).status.code(), Some(4));

    follower.wait_for("killed");
    let seen = events(&home, &["--kind", "flow"]);
    assert_eq!(
        (seen.len(), seen[0]["flow"]["id"].as_str(), seen[0]["flow"]["verdict"].as_str()),
        (1, Some(flow), Some("killed"))
    );
    let actions: Vec<_> = events(&home, &["--kind", "admin"])
        .iter()
        .map(|event| event["admin"]["action"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(actions, ["account.create", "socket.create", "tunnel.create", "flow.kill"]);
    let table = text(&home.run(&["audit"]).stdout);
    assert!(table.contains("test@example.com") && table.contains("socket.create") && table.contains("killed"));
    let mut datagram = [0; 65_536];
    let length = syslog.recv(&mut datagram).unwrap();
    assert!(text(&datagram[..length]).starts_with("<110>1 "));

    // A successor takes over the log, with the last events of the former process.
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"GET /trickle/600 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    let range = format!("{port}-{port}");
    let next = home.up(&["--takeover", "--audit", "all", "--port-range", &range]);
    drop(client);
    up.program.ended();
    drop(follower);
    wait_until("the flow of the former process is on record", || {
        (events(&home, &["--kind", "flow"]).len() == 2).then_some(())
    });
    let verified = home.json(&["audit", "verify"]);
    assert_eq!((verified["is_good"].as_bool(), verified["gaps"].as_u64()), (Some(true), Some(0)), "{verified}");
    assert!(next.program.stop().success());

    // Without the server, after a line was removed.
    let data = home.data();
    let offline = || home.run(&["audit", "verify", "--data", data.to_str().unwrap()]);
    assert!(offline().status.success(), "{}", text(&offline().stderr));
    let file = data.join("audit/0000000001.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap();
    let without: Vec<_> = lines.lines().enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
    std::fs::write(&file, without.join("\n") + "\n").unwrap();
    let found = offline();
    assert_eq!(found.status.code(), Some(1));
    assert!(text(&found.stdout).contains("event 3 is missing"), "{}", text(&found.stdout));
}
