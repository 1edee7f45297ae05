//! Relayed streams end at both ends, and go to healthy origins: control and two edges, each a process.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use crate::{
    fleet::{Bus, ControlHere, EdgeHere, connect_to, token},
    harness::{Home, PATIENCE, text, wait_until},
    mesh::{Tls, port_of, service},
    tcp::{free_ports, id, socket},
};

/// Answers with its name, and with a bad status while it is unhealthy.
fn moody(name: &'static str, is_well: &Arc<AtomicBool>) -> SocketAddr {
    let is_well = is_well.clone();
    service(move |mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !stream.read(&mut byte).is_ok_and(|bytes| bytes > 0) {
                return;
            }
            head.push(byte[0]);
        }
        let status = if is_well.load(Ordering::SeqCst) { "200 OK" } else { "500 Not well" };
        let length = name.len();
        let response = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{name}");
        drop(stream.write_all(response.as_bytes()));
    })
}

#[test]
fn an_origin_that_gets_ill_is_passed_over_by_clients_at_another_edge() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let (a, b) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    let check = "--health-check http:/up --health-interval 2s --health-timeout 2s --unhealthy-threshold 1 \
                 --healthy-threshold 1";
    let (socket, host) = home.socket(&check.split(' ').collect::<Vec<_>>());
    let (one, two) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let token = token(&home);
    let with = ["--token", token.as_str(), "--redundancy", "1"];
    let _one = connect_to(&home, &b, &socket, moody("one", &one).port(), &with);
    let _two = connect_to(&home, &b, &socket, moody("two", &two).port(), &with);
    let ask = || a.get(&home, &host, "/");
    let says = |status: u16, name: &str| ask() == (status, name.to_owned());
    for name in ["one", "two"] {
        wait_until("both are served by way of the other edge", || says(200, name).then_some(()));
    }
    one.store(false, Ordering::SeqCst);
    wait_until("the failing service gets no requests", || (0..10).all(|_| says(200, "two")).then_some(()));
    for number in 0..20 {
        let (status, body) = ask();
        assert!((status, body.as_str()) == (200, "two"), "request {number}: {status} {body}");
    }
    // All are unhealthy: the same error as for local tunnels.
    two.store(false, Ordering::SeqCst);
    wait_until("clients get the error", || {
        let (status, body) = ask();
        (status == 503 && body.contains("no-healthy-origin")).then_some(())
    });
    one.store(true, Ordering::SeqCst);
    wait_until("the one that is well again serves", || (0..5).all(|_| says(200, "one")).then_some(()));
}

/// Echoes a connection, and signals its end.
fn echo(mut stream: TcpStream, over: &Sender<()>) {
    let mut bytes = [0; 1_024];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(stream.shutdown(Shutdown::Both));
    let _ = over.send(());
}

/// A machine's certificate, as arguments for openssl.
fn machine(home: &Home, name: &str, dir: &Path) -> [String; 4] {
    let file = |end: &str| dir.join(format!("{name}.{end}")).to_str().unwrap().to_owned();
    let (key, cert) = (file("key"), file("crt"));
    home.json(&["service-token", "create", name, "--certificate", "--key-out", &key, "--cert-out", &cert]);
    ["-cert".to_owned(), cert, "-key".to_owned(), key]
}

fn wait_until_cut(what: &str, client: &mut Tls, over: &Receiver<()>) {
    wait_until(what, || client.0.try_wait().unwrap());
    over.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: the connection to the service stays open"));
}

#[test]
fn whoever_may_not_go_on_is_cut_off_at_both_ends_of_a_relay() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let ports = free_ports(2);
    let range = format!("{}-{}", ports.start(), ports.end());
    let _control = ControlHere::start_with(&home, &bus, &["--port-range", &range]);
    home.account();
    let (b, a) = (EdgeHere::join(&home, "us-1", "us"), EdgeHere::join_at(&home, "eu-1", "eu", "127.0.0.2"));
    let token = token(&home);
    let with = ["--token", token.as_str(), "--redundancy", "1"];
    let done = |args: &[&str]| {
        let output = home.run(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    };
    let (says_over, over) = channel();
    let service = service(move |stream| echo(stream, &says_over));

    // Machines, each with a certificate of its own.
    done(&["policy", "create", "machines", "--service-token", "one", "--service-token", "two"]);
    let (one, two) = (machine(&home, "one", home.dir.path()), machine(&home, "two", home.dir.path()));
    let db = home.json(&["socket", "create", "--name", "db", "--type", "tls", "--cloudauth", "--policy", "machines"]);
    let host = db["dns_name"].as_str().unwrap();
    let _db = connect_to(&home, &b, id(&db), service.port(), &with);
    let open = |machine: &[String; 4]| {
        wait_until("the machine is admitted at the other edge", || {
            let more: Vec<_> = machine.iter().map(String::as_str).collect();
            let mut client = Tls::open(&home, &a, host, &more);
            client.try_reads("hello").then_some(client)
        })
    };
    let (mut client, mut other) = (open(&one), open(&two));
    while over.try_recv().is_ok() {}
    done(&["service-token", "rm", "one"]);
    wait_until_cut("the machine's identity is deleted", &mut client, &over);
    other.send("again");
    other.reads("again");
    done(&["policy", "edit", "machines", "--deny", "--service-token", "two"]);
    wait_until_cut("its policy denies it now", &mut other, &over);

    // A socket that is deleted.
    let tcp = socket(&home, "tcp", &[]);
    let _tcp = connect_to(&home, &b, id(&tcp), service.port(), &with);
    let at = (a.ip, port_of(&tcp));
    let mut flow = wait_until("the port is served", || {
        let mut flow = TcpStream::connect(at).ok()?;
        flow.set_read_timeout(Some(PATIENCE)).unwrap();
        flow.write_all(b"hello").ok()?;
        flow.read_exact(&mut [0; 5]).ok()?;
        Some(flow)
    });
    while over.try_recv().is_ok() {}
    done(&["socket", "rm", id(&tcp)]);
    let ended = flow.read(&mut [0; 1]);
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    let is_late =
        ended.is_err_and(|error| matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
    assert!(!is_late, "the client of a deleted socket is not cut off");
    over.recv_timeout(PATIENCE).expect("the connection to the service of a deleted socket ends");
}
