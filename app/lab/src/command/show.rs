//! Laboratories for people to read.

use sallyport_cli::output;
use sallyport_lab::{Internet, Kind, Lab, Life, Status};

/// The laboratory, and suggestions.
pub(super) fn what_to_try(lab: &Lab, seconds: u64) -> String {
    let topology = &lab.plan.topology;
    if let Some(internet) = &lab.plan.internet {
        return anycast_to_try(lab, internet, seconds);
    }
    let mut text = format!("\nthe laboratory {} stands after {seconds} s\n\n", topology.name);
    for (region, name) in topology.regions.iter().enumerate() {
        let nodes = lab.plan.nodes.iter().filter(|node| node.region == region);
        let nodes: Vec<_> = nodes.map(|node| node.name.as_str()).collect();
        text += &format!("  {:<4}{}\n", name.as_str(), nodes.join("  "));
    }
    let option = if topology.name.as_str() == "lab" { String::new() } else { format!(" --lab {}", topology.name) };
    let first = topology.regions.first().map(ToString::to_string).unwrap_or_default();
    let last = topology.regions.last().map(ToString::to_string).unwrap_or_default();
    let edge = lab.plan.nodes.iter().find(|node| node.kind == Kind::Edge).map(|node| node.name.clone());
    let edge = edge.unwrap_or_default();
    let host = &lab.secrets.host;
    let lines = [
        (format!("exec {last}-client -- curl https://{host}/"), "the response has the name of its origin"),
        (format!("exec {first}-client -- sallyport edge ls"), "the owner is logged in on every node"),
        (format!("load --from {first}-client --seconds 20 &"), "sends requests, and counts the failed ones"),
        (format!("fault kill {edge} --for 10s"), "kill -9, and a new start after 10 s"),
        ("fault pause nats-1 --for 10s".to_owned(), "it keeps its connections open and sends nothing"),
        (format!("fault partition {last} --for 10s"), "nothing passes between the region and the others"),
        (format!("fault slow {edge} --delay 200ms --for 10s"), "and --loss, --rate"),
        ("chaos --for 60s".to_owned(), "random faults one after the other, under load"),
        ("status".to_owned(), "processes, their memory, and faults that hold"),
        ("down".to_owned(), "removes everything"),
    ];
    text += "\ntry:\n";
    for (command, what) in lines {
        text += &format!("  {:<62} # {what}\n", format!("sallyport lab{option} {command}"));
    }
    text.trim_end().to_owned()
}

/// An anycast laboratory, and suggestions.
fn anycast_to_try(lab: &Lab, internet: &Internet, seconds: u64) -> String {
    let topology = &lab.plan.topology;
    let mut text = format!("\nthe laboratory {} stands after {seconds} s\n\n", topology.name);
    let (routers, others): (Vec<_>, Vec<_>) = lab.plan.nodes.iter().partition(|node| node.kind == Kind::Router);
    let routers = routers.iter().map(|node| node.name.as_str()).filter(|name| name.starts_with("as"));
    text += &format!("  {:<14}{}\n", "networks", routers.collect::<Vec<_>>().join("  "));
    for (site, name) in internet.sites.iter().enumerate() {
        let nodes = others.iter().filter(|node| node.region == site && !matches!(node.kind, Kind::Control | Kind::Bus));
        text += &format!("  {name:<14}{}\n", nodes.map(|node| node.name.as_str()).collect::<Vec<_>>().join("  "));
    }
    let option = if topology.name.as_str() == "lab" { String::new() } else { format!(" --lab {}", topology.name) };
    let last = internet.sites.last().copied().unwrap_or_default();
    let host = &lab.secrets.host;
    let more = internet.topology.edges.first().map_or(4, |edges| (edges * 2).min(8));
    let lines = [
        ("anycast status".to_owned(), "which client network lands at which site, and by which path"),
        (format!("exec {last}-client -- curl -6 https://{host}/"), "the response has the name of its origin"),
        ("exec control-1 -- sallyport anycast status".to_owned(), "what edges announce, and to whom"),
        (
            format!(
                "exec control-1 -- sallyport anycast explain --from AS3356 --wanted london --relations {}",
                lab.places.relations().display()
            ),
            "where London's clients are led, and why",
        ),
        ("anycast drill withdraw london-1".to_owned(), "an operator drains an edge, while clients send requests"),
        ("anycast drill silent london-1".to_owned(), "an edge says nothing any more: BFD notices"),
        (format!("anycast grow london {more}"), "connections that break when a site gets more edges"),
        ("down".to_owned(), "removes everything"),
    ];
    text += "\ntry:\n";
    for (command, what) in lines {
        text += &format!("  {:<62} # {what}\n", format!("sallyport lab{option} {command}"));
    }
    text.trim_end().to_owned()
}

/// The state of a laboratory.
pub(super) fn status(status: &Status) -> String {
    let life = |life: Life| match life {
        Life::Runs => "runs",
        Life::Paused => "paused",
        Life::Gone => "gone",
    };
    let rows = status.processes.iter().map(|process| {
        let used = process.used.unwrap_or_default();
        [
            process.name.clone(),
            process.region.clone(),
            process.address.to_string(),
            process.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            life(process.life).to_owned(),
            format!("{:.1} MiB", used.memory_bytes as f64 / 1_048_576.0),
            format!("{:.1} s", used.cpu_us as f64 / 1e6),
        ]
    });
    let mut text = output::table(["PROCESS", "REGION", "ADDRESS", "PID", "STATE", "MEMORY", "CPU"], rows);
    text += &format!("\n\nsocket  https://{}/\n", status.host);
    for (what, lines) in [("cut", &status.cuts), ("slowed", &status.slowed)] {
        for line in lines {
            text += &format!("{what:<7} {line}\n");
        }
    }
    match &status.wiring {
        Some(wiring) => {
            let counts = wiring.counts;
            text += &format!(
                "wires   {} packets, {} lost to cuts, {} by chance, {} to full queues",
                counts.carried, counts.cut, counts.chance, counts.queue
            );
        }
        None => text += "wires   gone: nothing passes between nodes",
    }
    text
}
