//! Edges with their own credentials at a real NATS, with exactly the permissions of integrations/nats.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value;

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, connect, edges, token},
    harness::{Home, Origin, PATIENCE, text, wait_until},
};

/// The permissions, as documented for operators.
const PERMISSIONS: &str = include_str!("../../../../integrations/nats/sallyport.conf");
const PASSWORDS: [(&str, &str); 2] =
    [("SALLYPORT_BUS_PASSWORD", "of-control"), ("SALLYPORT_BUS_EDGE_PASSWORD", "of-edges")];
const USERS: [&str; 4] = ["--bus-user", "sallyport-control", "--bus-edge-user", "sallyport-edge"];

fn bus(home: &Home) -> Option<Bus> {
    let passwords: String = PASSWORDS.iter().map(|(name, value)| format!("{name}: {value:?}\n")).collect();
    Bus::start(home, &(passwords + PERMISSIONS))
}

/// A client of NATS by hand (docs.nats.io, "NATS Protocol").
struct Speaker {
    reader: BufReader<TcpStream>,
}

impl Speaker {
    fn new(bus: &Bus, user: &str, password: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", bus.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut speaker = Self { reader: BufReader::new(stream) };
        assert!(speaker.line().starts_with("INFO "));
        speaker.say(&format!("CONNECT {{\"user\":{user:?},\"pass\":{password:?},\"verbose\":false}}"));
        assert_eq!(speaker.answers(), [""; 0]);
        speaker
    }

    fn say(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The messages that came before the bus had read all input.
    fn answers(&mut self) -> Vec<String> {
        self.say("PING");
        let mut came = Vec::new();
        loop {
            let line = self.line();
            if line == "PONG" {
                return came;
            }
            if let Some(length) = line.strip_prefix("MSG ").and_then(|head| head.rsplit(' ').next()?.parse().ok()) {
                let mut message = vec![0_u8; length];
                self.reader.read_exact(&mut message).unwrap();
                self.line();
                came.push(text(&message));
            } else if line != "PING" {
                came.push(line);
            }
        }
    }

    fn publish(&mut self, subject: &str, reply: &str, message: &str) -> Vec<String> {
        self.say(&format!("PUB {subject} {reply} {}\r\n{message}", message.len()));
        self.answers()
    }

    fn subscribe(&mut self, subject: &str) -> Vec<String> {
        self.say(&format!("SUB {subject} {}", subject.len()));
        self.answers()
    }
}

fn assert_refused(answers: &[String], what: &str) {
    assert!(answers.iter().any(|line| line.contains("Permissions Violation")), "{what}: {answers:?}");
}

/// A collector of OTLP over HTTP, with what it received.
fn collector() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, sent) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(Mutex::new(String::new())));
    let kept = sent.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            loop {
                let mut length = 0;
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        break;
                    }
                    let header = line.to_ascii_lowercase();
                    length = header.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
                }
                let mut body = vec![0; length];
                if line.is_empty() || reader.read_exact(&mut body).is_err() {
                    break;
                }
                kept.lock().unwrap().push_str(&text(&body));
                let response = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                reader.get_mut().write_all(response.as_bytes()).unwrap();
            }
        }
    });
    (url, sent)
}

/// The events in control's log, by the recording machine.
fn recorded_by(home: &Home, node: &str) -> Vec<Value> {
    let log = text(&home.run(&["audit", "--since", "1h", "-o", "json"]).stdout);
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["node"].to_string().contains(node)).collect()
}

#[test]
fn edges_with_credentials_of_their_own_do_all_their_work_and_change_nothing_of_others() {
    let home = Home::new();
    let Some(bus) = bus(&home) else { return };
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    let (otlp, collected) = collector();
    let options = [&USERS[..], &["--audit-otlp", &otlp]].concat();
    let control = ControlHere::start_by(&home, &bus, &options, &PASSWORDS);
    home.account();
    let joins = |name: &'static str, region: &str, more: &[&str]| {
        let token = home.json(&["edge", "token", "create", "--name", name]);
        let mut edge = EdgeHere::new(&home, name, "127.0.0.1");
        let join = ["--join", token["token"].as_str().unwrap(), "--region", region];
        edge.start(&home, &[&join, more].concat());
        edge
    };
    let target = format!("udp://{}", syslog.local_addr().unwrap());
    let (a, b) = (joins("eu-1", "eu", &[]), joins("us-1", "us", &["--audit", "all", "--audit-syslog", &target]));
    wait_until("both edges are there", || {
        let edges = edges(&home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
    // An edge's state has no credentials of control.
    let kept = std::fs::read_to_string(a.data.join("edge.json")).unwrap();
    assert!(kept.contains("of-edges") && !kept.contains("of-control"), "{kept}");

    // A tunnel at one edge is found at the other, questions are answered, and events of an edge come to control.
    let (socket, host) = home.socket(&[]);
    wait_until("the socket is known at both", || (a.knows(&home, &host) && b.knows(&home, &host)).then_some(()));
    let origin = Origin::start("origin");
    let _connector = connect(&home, &a, &socket, &origin, &["--token", &token(&home), "--redundancy", "1"]);
    wait_until("the tunnel is found at the other edge", || (b.get(&home, &host, "/hello").0 == 200).then_some(()));
    let output = home.run(&["flow", "ls"]);
    assert!(output.status.success() && output.stderr.is_empty(), "an edge has not responded: {output:?}");
    wait_until("what the edge recorded is at control", || {
        recorded_by(&home, "us-1").iter().any(|event| event["kind"] == "flow").then_some(())
    });
    assert!(
        recorded_by(&home, "eu-1").iter().all(|event| event["kind"] != "flow"),
        "it records only sockets with a login"
    );
    let mut datagram = [0; 65_536];
    let length = syslog.recv(&mut datagram).unwrap();
    assert!(text(&datagram[..length]).contains("\"flow\""), "{}", text(&datagram[..length]));
    wait_until("control's collector has what control recorded, and what the edge did", || {
        let sent = collected.lock().unwrap();
        (sent.contains("sallyport.audit.admin") && sent.contains("sallyport.audit.flow") && sent.contains("us-1"))
            .then_some(())
    });

    // An attacker with an edge's credentials.
    let mut thief = Speaker::new(&bus, "sallyport-edge", "of-edges");
    let id = edges(&home)[0]["id"].as_str().unwrap().to_owned();
    for subject in [
        "$KV.sallyport_config.meta",
        "$KV.sallyport_config.route.0",
        "$KV.sallyport_directory.control.x",
        "$JS.API.STREAM.DELETE.KV_sallyport_config",
        "$JS.API.STREAM.DELETE.sallyport-audit",
        "$JS.API.STREAM.PURGE.KV_sallyport_config",
        "$JS.API.STREAM.UPDATE.KV_sallyport_config",
        "$JS.API.STREAM.MSG.DELETE.KV_sallyport_config",
        "$JS.API.STREAM.CREATE.mine",
        "$JS.API.DIRECT.GET.KV_sallyport_directory",
        "$JS.API.CONSUMER.CREATE.sallyport-audit.mine",
        "$JS.API.CONSUMER.MSG.NEXT.KV_sallyport_directory.mine",
        "sallyport.controls",
        &format!("sallyport.ask.{id}"),
        "_INBOX.sallyport-edge.other",
    ] {
        assert_refused(&thief.publish(subject, "_INBOX.sallyport-edge.x", "{}"), subject);
    }
    for subject in [">", "_INBOX.>", "_INBOX.*.*", "$KV.>", "sallyport.>", "sallyport.controls", "sallyport.audit.*"] {
        assert_refused(&thief.subscribe(subject), subject);
    }
    // It cannot make the bus write configuration: nothing is delivered there.
    assert_eq!(thief.subscribe("_INBOX.sallyport-edge.x"), [""; 0]);
    let deliver = |to: &str| {
        let config = format!(
            "{{\"name\":\"mine\",\"deliver_subject\":{to:?},\"deliver_policy\":\"all\",\"ack_policy\":\"none\",\"mem_storage\":true}}"
        );
        format!("{{\"stream_name\":\"KV_sallyport_directory\",\"config\":{config}}}")
    };
    let subject = "$JS.API.CONSUMER.CREATE.KV_sallyport_directory.mine";
    thief.publish(subject, "_INBOX.sallyport-edge.x", &deliver("$KV.sallyport_config.route.0"));
    let mut owner = Speaker::new(&bus, "sallyport-control", "of-control");
    assert_eq!(owner.subscribe("_INBOX.owner"), [""; 0]);
    let asked = "{\"subjects_filter\":\">\"}";
    let mut came = owner.publish("$JS.API.STREAM.INFO.KV_sallyport_config", "_INBOX.owner", asked);
    let known = wait_until("what is in the configuration", || {
        came.extend(owner.answers());
        came.iter().find(|response| response.contains("stream_info_response")).cloned()
    });
    assert!(
        known.contains("_config.meta\"") && !known.contains("route.0\"") && !known.contains("_directory"),
        "{known}"
    );

    // Responses of the bus may be stored there, as permissions do not cover responses: edges go on with their last
    // state.
    let key = format!("$KV.sallyport_config.route.{socket}");
    assert_eq!(thief.publish("$JS.API.STREAM.INFO.KV_sallyport_config", &key, ""), [""; 0]);
    b.program.as_ref().unwrap().wait_for("is not understood");
    assert_eq!(b.get(&home, &host, "/hello").0, 200);

    // All is as it was, and the bus had nothing to refuse to the edges themselves.
    let (_, another) = home.socket(&[]);
    wait_until("another socket is known at both", || {
        (a.knows(&home, &another) && b.knows(&home, &another)).then_some(())
    });
    for edge in [&a, &b] {
        let log = edge.program.as_ref().unwrap().output();
        assert!(!log.contains("the bus reports an error"), "{log}");
        assert_eq!(edge.get(&home, &format!("api.{DOMAIN}"), "/readyz").0, 200);
    }
    let log = control.program.as_ref().unwrap().output();
    assert!(!log.contains("the bus reports an error"), "{log}");
}

#[test]
fn credentials_for_edges_that_the_bus_refuses_are_reported_at_once() {
    let home = Home::new();
    let Some(bus) = bus(&home) else { return };
    let (data, url) = (home.data(), bus.url());
    let listen = ["--listen", "127.0.0.1:0", "--listen-edges", "127.0.0.1:0", "--bus", &url];
    let args = [&["control", "--domain", DOMAIN, "--data", data.to_str().unwrap()], &listen[..], &USERS[..]].concat();
    let output = home.command(&args).env("SALLYPORT_BUS_PASSWORD", "of-control").output().unwrap();
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(2) && printed.contains("SALLYPORT_BUS_EDGE_PASSWORD"), "{printed}");
    let mut wrong = home.command(&args);
    wrong.env("SALLYPORT_BUS_PASSWORD", "of-control").env("SALLYPORT_BUS_EDGE_PASSWORD", "of-nobody");
    let output = wrong.output().unwrap();
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(1) && printed.contains("edges could not use the bus"), "{printed}");
    assert!(printed.contains("--bus-edge-user") && !printed.contains("of-nobody"), "{printed}");
}
