//! Steering in the laboratory: three regions with the delays of the world, and a flash crowd in one of them.

use serde_json::{Value, json};

use crate::{
    lab::{Here, until},
    steering::{Load, refused},
};

const REGIONS: [&str; 3] = ["eu", "us", "ap"];
/// What each origin can carry, in requests per second, and what it may see in any second. Requests that a machine held
/// back for 200 ms arrive together with those of the next second.
const LIMIT: u64 = 200;
const MOST: u64 = 240;
/// What comes to the edges of the regions, in requests per second, before and in the crowd.
const CALM: [u64; 3] = [120, 60, 40];
const CROWD: [u64; 3] = [300, 60, 40];
/// The phases, with what comes in each and for how many seconds.
const PHASES: [(&str, [u64; 3], u64); 3] =
    [("calm", CALM, 8), ("the crowd comes", CROWD, 6), ("nobody plans", CROWD, 12)];
/// How many connections the clients of a region have. New ones for all that waits would make a busy machine busier.
const CONNECTIONS: u64 = 100;
/// An answer that comes later than so many milliseconds has waited; the way from eu to ap and back takes 160.
const PROMPT_MS: u64 = 600;

/// The clients of a region, at their edge.
fn load(here: &Here, region: usize) -> Load {
    let edge = format!("{}-1:443", REGIONS[region]);
    let phase = |rates: [u64; 3], seconds: u64| {
        let rps = json!({ &edge: rates[region] });
        json!({ "seconds": seconds, "prompt_ms": PROMPT_MS, "rps": rps, "connections": CONNECTIONS })
    };
    let phases = PHASES.map(|(_, rates, seconds)| phase(rates, seconds));
    let client = format!("{}-client", REGIONS[region]);
    Load::start_by(here.command(&["exec", &client, "--", "python3"]), &here.ca(), &here.host, &json!(phases))
}

/// Waits for the end of a phase everywhere. Returns until when requests had to wait; `None` if the clients have not sent
/// what they should. Whatever the answers take, only a busy machine keeps them from that.
fn ended(loads: &mut [Load], phase: usize) -> Option<f64> {
    let (what, rates, seconds) = PHASES[phase];
    let ended: Vec<_> = loads.iter_mut().map(Load::ends).collect();
    for (region, ended) in REGIONS.iter().zip(&ended) {
        println!("{what}, {region}: {ended}");
    }
    let sent = |ended: &Value| {
        let counts = ended["statuses"].as_object().unwrap().values();
        counts.map(|count| count.as_f64().unwrap()).sum::<f64>()
    };
    if ended.iter().zip(rates).any(|(ended, rps)| sent(ended) < 0.97 * (rps * seconds) as f64) {
        println!("{what}: that is not judged, because the machine is too busy for its clients");
        return None;
    }
    for ended in &ended {
        // On a busy machine, three requests of a hundred may have waited for too long.
        let few = 3 * sent(ended) as u64 / 100;
        assert!(refused(ended) <= few, "{what}: the origins of all regions together can carry it: {ended}");
    }
    Some(ended.iter().map(|ended| ended["waited_until"].as_f64().unwrap()).fold(0.0, f64::max))
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
    ended(&mut loads, 0);
    loads.iter_mut().for_each(Load::begins);
    if let Some(until) = ended(&mut loads, 1) {
        println!("requests waited until {until} s after the begin of the crowd");
    }
    // In the middle of the crowd, nobody plans any more.
    loads.iter_mut().for_each(Load::begins);
    for name in ["control-1", "control-2", "nats-1", "nats-2", "nats-3"] {
        here.done(&["fault", "kill", name]);
    }
    ended(&mut loads, 2);
    for region in REGIONS {
        let peak = here.output_of(&format!("{region}-origin"), &["curl", "-sS", "http://127.0.0.1:8000/peak"]);
        println!("the origin of {region} got at most {} of {LIMIT} requests in a second", peak.trim());
        let peak: u64 = peak.trim().parse().unwrap();
        assert!(peak <= MOST, "the origin of {region} got {peak} requests in a second");
    }
    here.done(&["down"]);
}
