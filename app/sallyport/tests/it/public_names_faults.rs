//! Public names in trouble: an authority that is away, hurried, or for members alone; clocks and records that are wrong.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    harness::{Home, text, wait_until},
    pebble::{EXTERNAL_ACCOUNT, Gate, Pebble, prove},
    public_names::{DOMAIN, Server, doctor},
};

/// The names of an installation itself.
fn own_names() -> Vec<String> {
    ["", "api.", "login.", "tunnel.", "desk."].map(|label| format!("{label}{DOMAIN}")).to_vec()
}

/// Control looks for due certificates every 5 s: long enough to see that no order follows.
const NO_ORDER_WAIT: Duration = Duration::from_secs(7);

#[test]
fn an_authority_that_is_away_for_a_day_stops_no_name_and_meets_no_storm() {
    let Some(home) = Home::with_clock() else { return };
    let home = home.with_roots("pebble/root.pem");
    let Some(mut pebble) = Pebble::start(&home, None, &[]) else { return };
    let gate = Gate::to(pebble.port());
    pebble.directory = gate.port;
    let up = Server::start(&home, &pebble, DOMAIN, &[]);
    let own = own_names();
    own.iter().for_each(|name| drop(wait_until("the names of the server", || up.trusted(name))));
    home.account();

    gate.shut();
    let new: Vec<_> = (0..5).map(|_| home.socket(&[]).1).collect();
    let mut before = 0;
    for hours in ["+0h", "+6h", "+12h", "+18h", "+24h"] {
        home.turn_clock(hours);
        wait_until("a try", || (gate.refused() > before).then_some(()));
        before = gate.refused();
        assert!(own.iter().all(|name| up.trusted(name).is_some()), "{hours}: it serves on");
    }
    wait_until("the report", || up.own("/healthz").contains("certificate").then_some(()));
    let shown = home.json(&["cert", "show", &new[0]]);
    assert_eq!(shown["state"], "waiting");
    assert!(shown["problem"].as_str().unwrap().contains("cannot be reached"), "{shown}");
    assert!(gate.refused() <= 5 * 5 * 3, "{} connections in a day for 5 names", gate.refused());

    gate.open();
    home.turn_clock("+31h");
    new.iter().for_each(|name| drop(wait_until("a name that waited", || up.trusted(name))));
    thread::sleep(NO_ORDER_WAIT);
    assert_eq!(pebble.issued(), own.len() + new.len(), "one order for each name");
    wait_until("the end of the report", || (up.own("/healthz") == "ok\n").then_some(()));
    assert!(up.program.stop().success());
}

#[test]
fn a_renewal_that_should_have_been_is_made_at_once_and_without_a_failed_handshake() {
    let Some(home) = Home::with_clock() else { return };
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let up = Server::start(&home, &pebble, DOMAIN, &[]);
    let own = own_names();
    let first: Vec<_> = own.iter().map(|name| wait_until("the names", || up.trusted(name))).collect();
    for certificate in &first {
        pebble.suggest_renewal(certificate, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    }
    let (is_over, handshakes, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                for name in &own {
                    handshakes.fetch_add(1, SeqCst);
                    failed.fetch_add(usize::from(up.trusted(name).is_none()), SeqCst);
                }
            }
        });
        // The authority is asked again within a day.
        home.turn_clock("+25h");
        for (name, former) in own.iter().zip(&first) {
            wait_until("the renewal", || up.trusted(name).filter(|now| now != former));
        }
        is_over.store(true, SeqCst);
    });
    thread::sleep(NO_ORDER_WAIT);
    assert_eq!((pebble.issued(), failed.load(SeqCst)), (2 * own.len(), 0), "of {} handshakes", handshakes.load(SeqCst));
    assert!(up.program.stop().success());
}

#[test]
fn a_record_that_forbids_the_authority_stops_an_order_before_it_is_made() {
    let home = Home::trusting("pebble/root.pem");
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let up = Server::start(&home, &pebble, DOMAIN, &[]);
    own_names().iter().for_each(|name| drop(wait_until("the names", || up.trusted(name))));
    home.account();
    let socket = home.socket(&[]).0;
    let ordered = own_names().len() + 1;
    wait_until("the order of the socket", || (pebble.issued() == ordered).then_some(()));
    let policy = json!([{"tag": "issue", "value": "other.example"}]);
    pebble.set("add-caa", &json!({"host": "app.example.org.", "policies": policy}));
    home.json(&["domain", "add", "app.example.org"]);
    prove(&home, &pebble, "app.example.org");
    home.json(&["socket", "edit", &socket, "--domain", "app.example.org"]);
    let shown = || {
        // The order may not be known yet.
        let output = home.run(&["cert", "show", "app.example.org", "-o", "json"]);
        let shown: Value = serde_json::from_slice(&output.stdout).ok()?;
        shown["problem"].as_str().map(str::to_owned)
    };
    let problem = wait_until("the sentence", shown);
    assert!(problem.contains("forbids the authority") && problem.contains("pebble.letsencrypt.org"), "{problem}");
    assert_eq!(pebble.issued(), ordered);
    // A check of the domain looks again at once.
    pebble.set("clear-caa", &json!({"host": "app.example.org."}));
    home.json(&["domain", "check", "app.example.org"]);
    wait_until("the domain", || up.trusted("app.example.org"));
    assert!(up.program.stop().success());
}

#[test]
fn an_authority_for_members_gives_certificates_of_a_profile() {
    let home = Home::trusting("pebble/root.pem");
    let Some(pebble) = Pebble::start_for_members(&home) else { return };
    let up = Server::start(&home, &pebble, DOMAIN, &[]);
    up.program.wait_for("--acme-eab-file");
    assert!(up.program.stop().success());
    let file = home.dir.path().join("eab.json");
    let (id, key) = EXTERNAL_ACCOUNT;
    std::fs::write(&file, json!({"kid": id, "hmac_key": key}).to_string()).unwrap();
    let up = Server::start(
        &home,
        &pebble,
        DOMAIN,
        &["--acme-eab-file", file.to_str().unwrap(), "--acme-profile", "short", "--acme-challenges", "http-01"],
    );
    // The account of the installation: its token is found beside the root.
    home.account();
    home.json(&["cert", "renew", &format!("api.{DOMAIN}")]);
    wait_until("the name", || up.trusted(&format!("api.{DOMAIN}")));
    let shown = home.json(&["cert", "show", &format!("api.{DOMAIN}")]);
    let day = |field: &str| time::Date::parse(&shown[field].as_str().unwrap()[..10], DATE).unwrap();
    assert_eq!((day("not_after") - day("not_before")).whole_days(), 6, "{shown}");
    // Other people log in without the root: the API has a certificate that they trust.
    let invited = home.run(&["member", "add", "bob@example.com", "--role", "member"]);
    let how = text(&invited.stderr);
    assert!(invited.status.success() && how.contains("account create --api"), "{how}");
    assert!(!how.contains("--ca-fingerprint"), "{how}");
    assert!(up.program.stop().success());
}

const DATE: &[time::format_description::BorrowedFormatItem<'_>] =
    time::macros::format_description!("[year]-[month]-[day]");

#[test]
fn a_second_authority_steps_in_when_the_first_is_away() {
    let Some(home) = Home::with_clock() else { return };
    let Some(mut pebble) = Pebble::start(&home, None, &[]) else { return };
    let gate = Gate::to(pebble.port());
    gate.shut();
    let second = format!("https://127.0.0.1:{}/dir", pebble.port());
    pebble.directory = gate.port;
    let up = Server::start(&home, &pebble, DOMAIN, &["--acme-fallback", &second]);
    wait_until("the first try", || (gate.refused() > 0).then_some(()));
    assert_eq!(pebble.issued(), 0, "one fault is not enough");
    // After the second fault in a row.
    home.turn_clock("+10m");
    let names = own_names();
    let mut minutes = 10;
    names.iter().for_each(|name| {
        wait_until("the second authority", || {
            minutes += 5;
            home.turn_clock(&format!("+{minutes}m"));
            thread::sleep(Duration::from_millis(500));
            up.trusted(name)
        });
    });
    assert_eq!(pebble.issued(), names.len());
    assert!(up.program.stop().success());
}

/// Programs look names below localhost up themselves, so this one is not.
const OWN: &str = "names.example.org";
/// The checks of public names, in the order in which to mend what they find.
const CHECKED: [&str; 5] = ["clock", "authority", "dns", "ports", "caa"];

#[test]
fn doctor_names_faults_in_the_order_in_which_to_mend_them() {
    let Some(home) = Home::with_clock() else { return };
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let up = Server::start(&home, &pebble, OWN, &[]);
    let names = ["", "api.", "login.", "tunnel.", "desk.", "sallyport-status."].map(|label| format!("{label}{OWN}"));
    let ordered = &names[..5];
    ordered.iter().for_each(|name| drop(wait_until("the names", || up.trusted(name))));
    let checks = doctor(&home);
    for name in ["clock", "authority", "dns", "ports", "caa"] {
        assert_eq!(checks.state(name), "ok", "{name}: {checks:?}");
    }

    // One name that leads elsewhere is enough, the desk's too.
    let desk = json!({"host": format!("desk.{OWN}."), "addresses": ["127.0.0.5"]});
    pebble.set("add-a", &desk);
    let checks = doctor(&home);
    assert_eq!(checks.state("dns"), "warn", "{checks:?}");

    // Nothing listens at this address of the machine, and the records allow another authority alone.
    let at = |name: &String| format!("{name}.");
    names.iter().for_each(|name| pebble.set("add-a", &json!({"host": at(name), "addresses": ["127.0.0.5"]})));
    let policy = json!([{"tag": "issue", "value": "other.example"}]);
    pebble.set("add-caa", &json!({"host": at(&names[0]), "policies": policy}));
    let checks = doctor(&home);
    let states = ["dns", "ports", "caa"].map(|name| checks.state(name).to_owned());
    assert_eq!(states, ["warn", "fail", "fail"], "{checks:?}");
    let found = |name: &str| checks.0.iter().find(|check| check["name"] == name).unwrap().to_string();
    assert!(found("ports").contains("127.0.0.5") && found("ports").contains("open port"), "{}", found("ports"));
    assert!(found("caa").contains("names.example.org CAA 0 issue"), "{}", found("caa"));
    let order: Vec<_> = checks.0.iter().filter_map(|check| check["name"].as_str()).collect();
    let order: Vec<_> = order.into_iter().filter(|name| CHECKED.contains(name)).collect();
    assert_eq!(order[..5], CHECKED, "{checks:?}");

    // A clock that is off by a day comes first, and stops nothing.
    home.turn_clock("+24h");
    let checks = doctor(&home);
    assert_eq!((checks.state("clock"), checks.state("authority")), ("fail", "ok"), "{checks:?}");
    assert!(ordered.iter().all(|name| up.trusted(name).is_some()));
    assert_eq!(pebble.issued(), ordered.len(), "no storm of orders");
    assert!(up.program.stop().success());
}
