//! Quotas of edges that are only partly there: the bus does not reach them, or their process hangs.

use std::{
    collections::{HashMap, HashSet},
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::{
    fleet::{Bus, ControlHere, EdgeHere},
    harness::{Home, text, wait_until},
    steering::{Counted, Load, assert_served, refused},
};

/// A proxy before the bus that can cut single machines off.
struct CutBus {
    port: u16,
    state: Arc<Mutex<Cut>>,
}

#[derive(Default)]
struct Cut {
    names: HashSet<String>,
    connections: HashMap<String, Vec<TcpStream>>,
}

impl CutBus {
    fn start(bus: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Cut>>::default());
        let known = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", bus)) else { continue };
                let known = known.clone();
                let (client_again, server_again) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || carry(client, server, Some(&known)));
                thread::spawn(move || carry(server_again, client_again, None));
            }
        });
        Self { port, state }
    }

    /// Cuts the machine with this name off, or lets it in again.
    fn set_cut(&self, name: &str, is_cut: bool) {
        let mut state = self.state.lock().unwrap();
        if is_cut {
            state.names.insert(name.to_owned());
            for connection in state.connections.remove(name).into_iter().flatten() {
                let _ = connection.shutdown(Shutdown::Both);
            }
        } else {
            state.names.remove(name);
        }
    }
}

/// Relays one direction. With `cut`, the connection is known by the name that the client says first.
fn carry(mut from: TcpStream, mut to: TcpStream, cut: Option<&Mutex<Cut>>) {
    let (mut room, mut said, mut is_named) = (vec![0; 65_536], Vec::new(), cut.is_none());
    while let Ok(count @ 1..) = from.read(&mut room) {
        if let Some(cut) = cut.filter(|_| !is_named) {
            said.extend_from_slice(&room[..count]);
            if let Some(name) = text(&said).split("\"name\":\"").nth(1).and_then(|rest| rest.split('"').next()) {
                is_named = true;
                let mut cut = cut.lock().unwrap();
                if cut.names.contains(name) {
                    break;
                }
                cut.connections.entry(name.to_owned()).or_default().push(from.try_clone().unwrap());
            }
        }
        if to.write_all(&room[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

struct ThreeEdges {
    control: ControlHere,
    edges: [EdgeHere; 3],
    origin: Counted,
    socket: String,
    host: String,
}

/// Three edges, and an origin that carries 90 requests per second.
fn three_edges(home: &Home, bus: &Bus) -> ThreeEdges {
    let dial = ["--direct-origins", "127.0.0.1"];
    let control = ControlHere::start_with(home, bus, &dial);
    home.account();
    let names = [("eu-1", "eu"), ("us-1", "us"), ("asia-1", "asia")];
    let edges = names.map(|(name, region)| EdgeHere::join_with(home, name, region, "127.0.0.1", &dial));
    let origin = Counted::start();
    let (socket, host) = home.socket(&[]);
    home.json(&["socket", "origin", "add", &socket, &origin.address.to_string(), "--max-rps", "90"]);
    wait_until("all edges serve the socket", || {
        edges.iter().all(|edge| edge.get(home, &host, "/").0 == 200).then_some(())
    });
    ThreeEdges { control, edges, origin, socket, host }
}

impl ThreeEdges {
    fn rates(&self, rates: [u64; 3]) -> Value {
        let at = |edge: &EdgeHere| format!("127.0.0.1:{}", edge.port);
        let rates = self.edges.iter().zip(rates).filter(|(_, rate)| *rate > 0);
        rates.map(|(edge, rate)| (at(edge), json!(rate))).collect::<serde_json::Map<_, _>>().into()
    }

    /// An edge that the leading control hears.
    fn heard(&self, home: &Home, name: &str) -> Option<Value> {
        let plan = home.json(&["socket", "plan", &self.socket]);
        let edges = plan["edges"].as_array().unwrap();
        edges.iter().find(|edge| edge["edge"] == name && edge["is_heard"] == true).cloned()
    }

    /// What the leading control has heard of an edge's demand.
    fn demand(&self, home: &Home, name: &str) -> f64 {
        self.heard(home, name).and_then(|edge| edge["rps"].as_f64()).unwrap_or_default()
    }

    /// The quota that the edge says to have.
    fn quota(&self, home: &Home, name: &str) -> f64 {
        self.heard(home, name).and_then(|edge| edge["shares"][0]["quota_rps"].as_f64()).unwrap_or_default()
    }
}

#[test]
fn a_new_leader_counts_an_edge_that_the_bus_does_not_reach() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let cut = CutBus::start(bus.port);
    let near = Bus { port: cut.port, program: bus.program.clone(), dir: bus.dir.clone(), running: None };
    let mut fleet = three_edges(&home, &near);
    let phases = json!([
        { "rps": fleet.rates([50, 10, 10]) },
        { "seconds": 45, "rps": fleet.rates([50, 70, 10]) },
        { "rps": fleet.rates([10, 55, 5]) },
        { "seconds": 4, "rps": fleet.rates([10, 55, 5]) },
    ]);
    let mut load = Load::start(&home, &fleet.host, &phases);
    load.begins();
    wait_until("the demand is known", || (fleet.demand(&home, "eu-1") > 45.0).then_some(()));
    wait_until("the demand is served", || (fleet.quota(&home, "eu-1") > 52.0).then_some(()));
    load.ended();
    load.begins();
    cut.set_cut("sallyport edge eu-1", true);
    fleet.control.program = None;
    fleet.control.resume(&home);
    wait_until("its reports come through other edges", || (fleet.demand(&home, "eu-1") > 45.0).then_some(()));
    load.ends();
    // The edge gets nothing new while the bus does not reach it, and keeps what it has.
    assert!(fleet.origin.peak() <= 95, "{} in one second", fleet.origin.peak());
    load.begins();
    cut.set_cut("sallyport edge eu-1", false);
    wait_until("the edge gives back what it no longer needs", || (fleet.quota(&home, "us-1") > 60.0).then_some(()));
    load.ended();
    load.begins();
    let moved = load.ends();
    // The former quota refuses every second request.
    assert!(refused(&moved) < 28, "what the edge no longer needs goes to another one: {moved}");
    assert!(fleet.origin.peak() <= 95, "{} in one second", fleet.origin.peak());
}

#[test]
fn the_quotas_of_an_edge_that_hangs_go_to_others() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let fleet = three_edges(&home, &bus);
    let phases = json!([
        { "rps": fleet.rates([60, 10, 10]) },
        { "seconds": 28, "rps": fleet.rates([0, 70, 5]) },
        { "seconds": 4, "rps": fleet.rates([0, 70, 5]) },
        { "seconds": 4, "rps": fleet.rates([60, 70, 5]) },
    ]);
    let mut load = Load::start(&home, &fleet.host, &phases);
    load.begins();
    wait_until("the demand is served", || (fleet.quota(&home, "eu-1") > 62.0).then_some(()));
    load.ended();
    load.begins();
    let hung = fleet.edges[0].program.as_ref().unwrap();
    hung.signal("STOP");
    load.ends();
    load.begins();
    let others = load.ends();
    assert_served(&others, "the system still takes connections for the edge, which has nothing");
    hung.signal("CONT");
    load.begins();
    load.ends();
    assert!(fleet.origin.peak() <= 95, "{} in one second", fleet.origin.peak());
}
