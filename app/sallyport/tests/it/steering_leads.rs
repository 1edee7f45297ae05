//! Two controls over one PostgreSQL, of which one leads in steering: it is killed and paused in the middle of a crowd.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    controls::{Control, at, join_in, log_in, two_controls_with},
    database::createdb,
    fleet::{Bus, DOMAIN, EdgeHere},
    harness::{Home, wait_until},
    lab::until,
    postgres,
    steering::{Counted, Load, assert_served, refused},
};

/// What each origin can carry, in requests per second, and what it may see in any second.
const LIMIT: usize = 100;
const MOST: usize = 105;
/// What comes to one edge in a crowd.
const CROWD: u64 = 170;
/// How long a request waits for a quota at an edge.
const WAIT: Duration = Duration::from_secs(1);

/// The demand has just changed, and all origins together can carry it. A request waits for a second at most, and the spill
/// may take longer on a busy machine. Without a spill, the crowd's edge refuses 29 % of all requests.
fn assert_spilled(ended: &Value) {
    let all: u64 = ended["statuses"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert!(refused(ended) * 5 <= all, "all origins together can carry it: {ended}");
}

/// The value of a metric without labels.
fn metric(metrics: &str, name: &str) -> Option<f64> {
    let mut lines = metrics.lines().filter_map(|line| line.split_once(' '));
    lines.find_map(|(key, value)| (key == name).then(|| value.parse().unwrap()))
}

/// Which of these controls leads; `None` if none or both say so.
fn leader(controls: &[&Control]) -> Option<usize> {
    let leads =
        |control: &&Control| metric(&control.get("/metrics", &[]).body, "sallyport_steering_leads") == Some(1.0);
    let leaders: Vec<_> = (0..controls.len()).filter(|at| leads(&controls[*at])).collect();
    if let [one] = leaders[..] { Some(one) } else { None }
}

/// A metric of the part of an edge in steering.
fn of_edge(home: &Home, edge: &EdgeHere, name: &str) -> Option<f64> {
    metric(&edge.get(home, &format!("api.{DOMAIN}"), "/metrics").1, &format!("sallyport_edge_steering_{name}"))
}

/// The term that an edge follows.
fn term(home: &Home, edge: &EdgeHere) -> Option<f64> {
    of_edge(home, edge, "term")
}

#[test]
fn another_control_plans_when_the_leading_one_is_killed_or_paused() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let dial = ["--direct-origins", "127.0.0.1"];
    let (mut one, mut two) = two_controls_with(&home, &createdb(server, "steering_leads"), &bus, &dial);
    let ca = one.data.join("ca.pem");
    std::fs::create_dir_all(home.data()).unwrap();
    std::fs::copy(&ca, home.data().join("ca.pem")).unwrap();
    log_in(&home, &one.api(), &ca);
    log_in(&home, &two.api(), &ca);
    let names = [("eu-1", "eu"), ("us-1", "us"), ("asia-1", "asia")];
    let edges = names.map(|name| join_in(&home, &one, EdgeHere::new(&home, name.0, "127.0.0.1"), name, &dial));
    let origins = names.map(|_| Counted::start());
    let socket = at(&home, &one.api(), &ca, &["socket", "create", "--name", "shop", "--type", "http"]);
    let (socket, host) = (socket["id"].as_str().unwrap(), socket["dns_name"].as_str().unwrap());
    for ((_, region), origin) in names.iter().zip(&origins) {
        let (address, limit) = (origin.address.to_string(), LIMIT.to_string());
        let add = ["socket", "origin", "add", socket, &address, "--region", region, "--max-rps", &limit];
        at(&home, &one.api(), &ca, &add);
    }
    wait_until("all edges have quotas", || {
        edges.iter().all(|edge| of_edge(&home, edge, "quotas") >= Some(1.0)).then_some(())
    });
    let planned = |control: &Control, wanted: &str| {
        let words = at(&home, &control.api(), &ca, &["socket", "plan", socket])["words"].to_string();
        words.contains(wanted).then_some(())
    };
    // An edge whose quotas suffice serves its crowd, whatever becomes of the controls.
    let has_quotas = |control: &Control, edge: &str| {
        let plan = at(&home, &control.api(), &ca, &["socket", "plan", socket]);
        let of_edge = plan["edges"].as_array().unwrap().iter().find(|one| one["edge"] == edge).unwrap();
        let quotas = of_edge["shares"].as_array().unwrap().iter().filter_map(|share| share["quota_rps"].as_f64());
        (quotas.sum::<f64>() > 1.05 * CROWD as f64).then_some(())
    };
    // The edge has these quotas, and the control knows it: for longer than a request waits, the edge refused none.
    let settled = |controls: [&Control; 2], edge: &str| {
        let mut since = None;
        until("the edge serves its crowd", || {
            let serves = controls.iter().all(|control| {
                let plan = at(&home, &control.api(), &ca, &["socket", "plan", socket]);
                // A control that has just begun knows of no edge yet.
                plan["edges"].as_array().unwrap().iter().find(|one| one["edge"] == edge).is_some_and(|of_edge| {
                    let hears = of_edge["rps"].as_f64().is_some_and(|rps| rps > 0.95 * CROWD as f64);
                    hears && of_edge["refused_rps"].as_f64() == Some(0.0)
                })
            });
            since = (serves && has_quotas(controls[0], edge).is_some()).then(|| since.unwrap_or_else(Instant::now));
            since.filter(|since| since.elapsed() > 2 * WAIT).map(drop)
        });
    };
    let follow_after = |former: f64| edges.iter().all(|edge| term(&home, edge).is_some_and(|term| term > former));

    let address = |edge: &EdgeHere| format!("127.0.0.1:{}", edge.port);
    let rates = |eu: u64, us: u64, asia: u64| {
        let rps = json!({ address(&edges[0]): eu, address(&edges[1]): us, address(&edges[2]): asia });
        json!({ "rps": rps, "at_once": true })
    };
    // A crowd is less than four times what the edge had before.
    let (at_eu, at_us) = (rates(CROWD, 50, 20), rates(50, CROWD, 20));
    let mut calm = rates(90, 50, 20);
    calm["seconds"] = json!(5);
    let phases = [&calm, &at_eu, &at_eu, &at_us, &at_us, &at_eu];
    let mut load = Load::start(&home, host, &json!(phases));
    load.begins();
    let leads = wait_until("one control leads", || leader(&[&one, &two]));
    let calm = load.ends();
    assert_served(&calm, "the quotas suffice");

    // The leading control is killed in the middle of a crowd.
    load.begins();
    let (leading, other) = if leads == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
    until("the crowd is planned", || planned(leading, "of eu-1 goes to"));
    settled([leading, other], "eu-1");
    assert_spilled(&load.ended());
    load.begins();
    let former = term(&home, &edges[0]).unwrap();
    leading.kill();
    wait_until("the other control leads", || leader(&[other]));
    until("all edges follow it", || follow_after(former).then_some(()));
    let alone = load.ended();
    assert_served(&alone, "the quotas stay");
    load.begins();
    until("the crowd is planned where it has moved", || planned(other, "of us-1 goes to"));
    settled([other, other], "us-1");
    assert_spilled(&load.ended());

    // The one that leads now is paused, until the first one leads again and has planned something else.
    load.begins();
    leading.resume(&home);
    let former = term(&home, &edges[0]).unwrap();
    settled([other, leading], "us-1");
    other.program.as_ref().unwrap().signal("STOP");
    wait_until("the first control leads again", || leader(&[leading]));
    until("all edges follow it", || follow_after(former).then_some(()));
    let alone = load.ended();
    assert_served(&alone, "the quotas stay");
    load.begins();
    until("the crowd is planned where it came from", || planned(leading, "of eu-1 goes to"));
    other.program.as_ref().unwrap().signal("CONT");
    until("the paused control knows that it leads no more", || {
        (metric(&other.get("/metrics", &[]).body, "sallyport_steering_leads") == Some(0.0)).then_some(())
    });
    until("what it missed is known to it", || planned(other, "of eu-1 goes to"));
    assert_spilled(&load.ended());
    for ((_, region), origin) in names.iter().zip(&origins) {
        let peak = origin.peak();
        println!("{region} got at most {peak} of {LIMIT} in a second");
        assert!(peak <= MOST, "{region} got {peak} in one second");
    }
}
