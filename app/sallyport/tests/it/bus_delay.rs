//! Edges with a slow bus: what the API has answered applies there too.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    fleet::{Bus, ControlHere, EdgeHere, connect, token},
    harness::{Home, Origin, Program, text, wait_until},
};

/// The delay of the bus: longer than a connector trusts a single edge.
const LATE: Duration = Duration::from_secs(6);

/// A proxy before the bus that delays messages to edges.
struct LateBus {
    port: u16,
    late_ms: Arc<AtomicU64>,
}

impl LateBus {
    fn start(bus: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, late_ms) = (listener.local_addr().unwrap().port(), Arc::<AtomicU64>::default());
        let late = late_ms.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", bus)) else { continue };
                let late = late.clone();
                thread::spawn(move || carry(client, server, late));
            }
        });
        Self { port, late_ms }
    }
}

/// Relays a connection. An edge's connection is recognised by its name.
fn carry(client: TcpStream, server: TcpStream, late_ms: Arc<AtomicU64>) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (called, is_edge) = mpsc::channel();
    thread::spawn(move || {
        let (mut room, mut printed) = (vec![0; 65_536], Vec::new());
        while let Ok(n @ 1..) = from.read(&mut room) {
            if printed.len() < 4_096 {
                printed.extend_from_slice(&room[..n]);
                if let Some(name) = text(&printed).split("\"name\":\"").nth(1).and_then(|rest| rest.split('"').next()) {
                    let _ = called.send(name.starts_with("sallyport edge"));
                    printed.resize(4_096, 0);
                }
            }
            if to.write_all(&room[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (server, client);
    let (give, given) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        while let Ok((due, bytes)) = given.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut room, mut is_late) = (vec![0; 65_536], false);
    while let Ok(n @ 1..) = from.read(&mut room) {
        is_late |= is_edge.try_recv().unwrap_or(false);
        let late = if is_late { Duration::from_millis(late_ms.load(Ordering::SeqCst)) } else { Duration::ZERO };
        if give.send((Instant::now() + late, room[..n].to_vec())).is_err() {
            break;
        }
    }
}

#[test]
fn a_new_tunnel_comes_up_at_edges_that_learn_of_it_late() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let late = LateBus::start(bus.port);
    let near = Bus { port: late.port, program: bus.program.clone(), dir: bus.dir.clone(), running: None };
    let _control = ControlHere::start(&home, &near);
    home.account();
    let (first, _second) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    let key = token(&home);
    let origin = Origin::start("late");
    late.late_ms.store(u64::try_from(LATE.as_millis()).unwrap(), Ordering::SeqCst);

    let (socket, host) = home.socket(&[]);
    assert!(!first.knows(&home, &host), "the bus is not late");
    let _connector = connect(&home, &first, &socket, &origin, &["--token", &key]);
    wait_until("it serves", || (first.get(&home, &host, "/").0 == 200).then_some(()));

    // For an unknown tunnel control confirms that, and the connector ends.
    let nobody = "00000000-0000-4000-8000-000000000001";
    let api = first.api();
    let args =
        ["tunnel", "connect", "--socket-id", &socket, "--tunnel-id", nobody, "--host", "127.0.0.1", "--port", "9"];
    let mut command = home.command(&[&args[..], &["--api", &api, "--token", &key]].concat());
    command.args(["--ca", home.data().join("ca.pem").to_str().unwrap()]);
    let stranger = Program::start(command.env("SALLYPORT_TUNNEL_CREDENTIAL", "sptc_none"));
    assert_eq!(stranger.ended().code(), Some(4), "{}", stranger.output());
}
