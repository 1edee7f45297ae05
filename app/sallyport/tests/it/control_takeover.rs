//! A control is replaced by another process while it serves requests: no request is refused.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, edges},
    harness::{Home, Program, curl, text, wait_until},
};

/// Asks again and again, each time over a new connection, and keeps what was not answered as it should be.
struct Asking {
    ends: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    wrong: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Asking {
    fn start(ca: PathBuf, url: String, args: Vec<String>) -> Self {
        let (ends, asked, wrong) = (Arc::default(), Arc::default(), Arc::default());
        let (ended, counted, kept): (Arc<AtomicBool>, Arc<AtomicUsize>, Arc<Mutex<Vec<String>>>) =
            (Arc::clone(&ends), Arc::clone(&asked), Arc::clone(&wrong));
        let thread = thread::spawn(move || {
            // No two sockets have the same name.
            for number in 0_u32.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let args: Vec<_> = args.iter().map(|arg| arg.replace("NUMBER", &number.to_string())).collect();
                let response = curl(&ca, &url, &args.iter().map(String::as_str).collect::<Vec<_>>());
                counted.fetch_add(1, Ordering::Relaxed);
                if !(200..300).contains(&response.status) {
                    kept.lock()
                        .unwrap()
                        .push(format!("{url} {}: {} {}", response.status, response.head, response.body));
                }
            }
        });
        Self { ends, asked, wrong, thread }
    }

    fn count(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn all_good(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), self.asked.load(Ordering::Relaxed));
    }
}

#[test]
fn a_control_is_replaced_under_load_without_refused_requests() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    let a = EdgeHere::join(&home, "eu-1", "eu");
    wait_until("the edge is there", || edges(&home).iter().any(|edge| edge["state"] == "up").then_some(()));
    let made = home.json(&["token", "create", "--name", "load", "--scope", "sockets:write"]);
    let bearer = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());

    // Straight to control, by the edge, and what changes something by the edge.
    let ca = home.data().join("ca.pem");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let straight = format!("https://api.{DOMAIN}:{}", control.ports.0);
    let by_edge = a.api();
    let changes = words(&["--header", &bearer, "--json", "{\"name\":\"load NUMBER\",\"type\":\"http\"}"]);
    let load = [
        Asking::start(ca.clone(), format!("{straight}/v1/info"), Vec::new()),
        Asking::start(ca.clone(), format!("{by_edge}/v1/info"), Vec::new()),
        Asking::start(ca, format!("{by_edge}/v1/sockets"), changes),
    ];
    let goes_on = || {
        let before: Vec<_> = load.iter().map(Asking::count).collect();
        wait_until("more responses", || {
            load.iter().zip(&before).all(|(asking, before)| asking.count() > before + 3).then_some(())
        });
    };
    goes_on();

    // One that cannot run changes nothing.
    let first = control.program.take().unwrap();
    let (listen, nodes) = (format!("127.0.0.1:{}", control.ports.0), format!("127.0.0.1:{}", control.ports.1));
    let data = home.data();
    let args = |more: &[&'static str]| {
        let args =
            ["control", "--domain", DOMAIN, "--bus", &control.bus, "--listen", &listen, "--listen-edges", &nodes];
        let args = [&args[..], &["--data", data.to_str().unwrap(), "--sign-up", "open"], more].concat();
        args.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let run = |more: &[&'static str]| {
        let args = args(more);
        home.command(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let printed = text(&run(&[]).output().unwrap().stderr);
    assert!(printed.contains("is in use by process") && printed.contains("--takeover"), "{printed}");
    let output = run(&["--takeover", "--geoip-country", "/nowhere.mmdb"]).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output.stderr));
    let up = ["up", "--takeover", "--data", data.to_str().unwrap(), "--domain", DOMAIN];
    let printed = text(&home.command(&up).output().unwrap().stderr);
    assert!(printed.contains("the process is a `sallyport control`"), "{printed}");
    goes_on();

    // One that can takes over, twice.
    let second = Program::start(&mut run(&["--takeover"]));
    second.wait_for("ready");
    assert!(first.ended().success(), "{}", first.output());
    goes_on();
    let third = Program::start(&mut run(&["--takeover"]));
    third.wait_for("ready");
    assert!(second.ended().success(), "{}", second.output());
    goes_on();
    load.into_iter().for_each(Asking::all_good);

    // The third does all that the first did: changes reach edges, edges come, and the log is whole.
    let (_, host) = home.socket(&[]);
    wait_until("a new socket is known at the edge", || a.knows(&home, &host).then_some(()));
    let _b = EdgeHere::join(&home, "us-1", "us");
    wait_until("a new edge is there", || {
        edges(&home).iter().any(|edge| edge["name"] == "us-1" && edge["state"] == "up").then_some(())
    });
    let verified = home.json(&["audit", "verify"]);
    assert_eq!((verified["is_good"].as_bool(), verified["gaps"].as_u64()), (Some(true), Some(0)), "{verified}");
    assert_eq!(third.stop().code(), Some(0), "{}", third.output());
}
