//! Steering in the laboratory: three regions with the delays of the world, and a flash crowd in one of them.

use serde_json::{Value, json};

use crate::{
    lab::{Here, until},
    steering::{Load, refused},
};

const REGIONS: [&str; 3] = ["eu", "us", "ap"];
/// What each origin can carry, in requests per second, and what it may see in any second.
const LIMIT: u64 = 200;
const MOST: u64 = 210;
/// What comes to the edges of the regions, in requests per second, before and in the crowd.
const CALM: [u64; 3] = [120, 60, 40];
const CROWD: [u64; 3] = [340, 60, 40];
const CROWD_SECONDS: u64 = 6;
/// How long after the begin of a crowd requests may wait, in seconds.
const SPILL_SECONDS: f64 = 2.0;
/// An answer that comes later than so many milliseconds has waited; the way from eu to ap and back takes 160.
const PROMPT_MS: u64 = 600;

/// The clients of a region, at their edge.
fn load(here: &Here, region: usize) -> Load {
    let edge = format!("{}-1:443", REGIONS[region]);
    let phase = |rates: [u64; 3], seconds: u64| {
        let rps = json!({ &edge: rates[region] });
        json!({ "seconds": seconds, "prompt_ms": PROMPT_MS, "rps": rps })
    };
    let phases = json!([phase(CALM, 8), phase(CROWD, CROWD_SECONDS), phase(CROWD, 12)]);
    let client = format!("{}-client", REGIONS[region]);
    Load::start_by(here.command(&["exec", &client, "--", "python3"]), &here.ca(), &here.host, &phases)
}

/// Waits for the end of the phase everywhere, and returns what the clients of each region saw.
fn ended(loads: &mut [Load], what: &str) -> Vec<Value> {
    let ended: Vec<_> = loads.iter_mut().map(Load::ends).collect();
    for (region, ended) in REGIONS.iter().zip(&ended) {
        println!("{what}, {region}: {ended}");
        assert_eq!(refused(ended), 0, "{what}: the origins of all regions together can carry it: {ended}");
    }
    ended
}

/// Whether the clients have sent what they should. Whatever the answers take, only a busy machine keeps them from that.
fn are_in_time(ended: &[Value]) -> bool {
    let sent = |ended: &Value| ended["statuses"]["200"].as_f64().unwrap();
    let share = |(ended, rps): (&Value, &u64)| sent(ended) / (*rps * CROWD_SECONDS) as f64;
    ended.iter().zip(&CROWD).map(share).all(|share| share > 0.97)
}

#[test]
fn a_crowd_is_carried_by_all_regions_also_without_controls_and_bus() {
    let Some(mut here) = Here::new('s') else { return };
    here.up_with(&[]);
    let host = here.host.clone();
    let tunnels = here.owner("eu-client", &["tunnel", "ls", &host]);
    let ids = tunnels.as_array().unwrap().iter().map(|tunnel| tunnel["id"].as_str().unwrap());
    let limit = LIMIT.to_string();
    for id in ids {
        here.owner("eu-client", &["tunnel", "edit", &host, "--tunnel-id", id, "--max-rps", &limit]);
    }
    until("all edges have quotas", || {
        let has = |region: &&str| {
            let url = "https://api.lab.test/metrics";
            let metrics = here.output_of(&format!("{region}-1"), &["curl", "-sS", url]);
            let quotas = metrics.lines().find_map(|line| line.strip_prefix("sallyport_edge_steering_quotas "));
            quotas.is_some_and(|count| count != "0")
        };
        REGIONS.iter().all(has).then_some(())
    });

    let mut loads: Vec<_> = (0..REGIONS.len()).map(|region| load(&here, region)).collect();
    loads.iter_mut().for_each(Load::begins);
    ended(&mut loads, "calm");
    loads.iter_mut().for_each(Load::begins);
    let crowd = ended(&mut loads, "the crowd comes");
    let until = crowd.iter().map(|ended| ended["waited_until"].as_f64().unwrap()).fold(0.0, f64::max);
    println!("requests waited until {until} s after the begin of the crowd");
    if are_in_time(&crowd) {
        assert!(until <= SPILL_SECONDS, "requests waited until {until} s after the begin of the crowd");
    } else {
        println!("that is not judged: the machine is too busy for the clients");
    }
    // In the middle of the crowd, nobody plans any more.
    loads.iter_mut().for_each(Load::begins);
    for name in ["control-1", "control-2", "nats-1", "nats-2", "nats-3"] {
        here.done(&["fault", "kill", name]);
    }
    ended(&mut loads, "nobody plans");
    for region in REGIONS {
        let peak = here.output_of(&format!("{region}-origin"), &["curl", "-sS", "http://127.0.0.1:8000/peak"]);
        println!("the origin of {region} got at most {} of {LIMIT} requests in a second", peak.trim());
        let peak: u64 = peak.trim().parse().unwrap();
        assert!(peak <= MOST, "the origin of {region} got {peak} requests in a second");
    }
    here.done(&["down"]);
}
