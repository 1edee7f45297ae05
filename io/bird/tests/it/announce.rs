//! Announced, deprioritised, withdrawn: as a neighbour hears it, by IPv4 and IPv6.

use std::time::Duration;

use sallyport_anycast::{
    bird::{Protocol, site_number},
    model::{Announcement, BfdTimers, Community, PeerRole},
};
use sallyport_bird::{Applier, Bird};

use crate::network::{Network, PREFIX4, PREFIX6, WORLD, can_run, heard, neighbour, part, peer, set, until};

async fn sessions(bird: &mut Bird) -> Vec<Protocol> {
    let mut found = bird.protocols().await.unwrap();
    found.retain(|protocol| protocol.kind == "BGP");
    found
}

/// The neighbours of the edge and their words for it: all of what a session can have.
fn world() -> String {
    let four = "password \"secret\"; ttl security on; local role provider; bfd { interval 100 ms; multiplier 3; };";
    let six = "ttl security on; local role peer; bfd on; allow local as 2;";
    // What comes back from further away: a longer and a foreign prefix, too.
    let back = "protocol static { ipv4; route 198.51.100.128/25 blackhole; route 9.0.0.0/8 blackhole; }\n";
    format!("{WORLD}{}{}{back}", neighbour("four", "10.0.0.2", four), neighbour("six", "fd00::2", six))
}

#[tokio::test]
async fn a_neighbour_hears_each_state_and_no_session_ends_between() {
    if !can_run() {
        return;
    }
    let mut network = Network::new();
    for address in ["198.51.100.1/32", "2001:db8:5::1/128"] {
        network.edge.ip(&["addr", "add", address, "dev", "lo"]);
    }
    network.start(&world()).await;
    let (mut edge, mut world) = (network.edge_bird().await, network.world_bird().await);
    let mut four = peer("transit-1", "10.0.0.2");
    four.password = Some("secret".to_owned());
    four.role = Some(PeerRole::Provider);
    four.bfd = Some(BfdTimers::default());
    four.communities = vec![Community::Standard(64501, 80), Community::Large(64501, 8, 9)];
    four.drain_communities = vec![Community::Standard(64501, 0)];
    four.prepend = 1;
    let mut six = peer("ix-6", "fd00::2");
    (six.role, six.bfd, six.is_no_export) = (Some(PeerRole::Peer), Some(BfdTimers::default()), true);
    let mut part = part(vec![four, six]);

    set(&mut part, Announcement::Announced);
    let applied = edge.apply(&part, &network.file).await.unwrap();
    assert_eq!(applied.without_session, ["transit-1", "ix-6"], "sessions come later");
    assert!(applied.missing.iter().any(|sentence| sentence.contains("send hold timer")), "{:?}", applied.missing);
    until("both are heard", async || {
        !heard(&mut world, PREFIX4).await.is_empty() && !heard(&mut world, PREFIX6).await.is_empty()
    })
    .await;
    let site = Community::Large(64500, 1, site_number("eu-west"));
    let route = heard(&mut world, PREFIX4).await.remove(0);
    assert_eq!(route.as_path, [64500, 64500]);
    for community in
        [site, Community::Standard(64501, 80), Community::Large(64501, 8, 9), Community::Standard(64500, 7)]
    {
        assert!(route.communities.contains(&community), "{community}: {route:?}");
    }
    let route = heard(&mut world, PREFIX6).await.remove(0);
    assert_eq!(route.as_path, [64500]);
    assert!(route.communities.contains(&Community::NO_EXPORT) && route.communities.contains(&site), "{route:?}");
    assert!(!route.communities.contains(&Community::GRACEFUL_SHUTDOWN));
    // The kernel delivers to the service addresses, and has no route of the file.
    for (family, address) in [("-4", "198.51.100.1"), ("-6", "2001:db8:5::1")] {
        assert!(network.edge.ip(&[family, "route", "get", address]).starts_with("local"));
        let routes = network.edge.ip(&[family, "route", "show", "table", "all"]);
        assert!(!routes.contains("blackhole") && !routes.contains("proto bird"), "{routes}");
    }
    until("BFD is up", async || {
        let reply = edge.request("show bfd sessions").await.unwrap();
        reply.lines.iter().filter(|line| line.text.contains(" Up ")).count() == 2
    })
    .await;
    until("what comes back is kept", async || !edge.imported().await.unwrap().is_empty()).await;
    let back = edge.imported().await.unwrap();
    assert_eq!(back.len(), 1, "{back:?}");
    assert_eq!((back[0].net.to_string().as_str(), back[0].as_path.as_slice()), ("198.51.100.128/25", &[64501][..]));
    let before: Vec<String> = sessions(&mut edge).await.into_iter().map(|session| session.since).collect();

    set(&mut part, Announcement::Deprioritised);
    let applied = edge.apply(&part, &network.file).await.unwrap();
    assert_eq!((applied.without_session.len(), applied.unheard.len()), (0, 0));
    for net in [PREFIX4, PREFIX6] {
        until("it is deprioritised", async || {
            heard(&mut world, net).await[0].communities.contains(&Community::GRACEFUL_SHUTDOWN)
        })
        .await;
    }
    let route = heard(&mut world, PREFIX4).await.remove(0);
    assert_eq!(route.as_path, [64500; 5]);
    assert!(route.communities.contains(&Community::Standard(64501, 0)), "{route:?}");
    assert_eq!(edge.announced().await.unwrap(), part.prefixes.iter().map(|one| (one.net, one.state)).collect());

    // One of the two: the other one stays.
    assert!(part.set(PREFIX4.parse().unwrap(), Announcement::Withdrawn));
    edge.apply(&part, &network.file).await.unwrap();
    until("one is withdrawn", async || heard(&mut world, PREFIX4).await.is_empty()).await;
    assert_eq!(heard(&mut world, PREFIX6).await.len(), 1);
    set(&mut part, Announcement::Withdrawn);
    edge.apply(&part, &network.file).await.unwrap();
    until("the other is withdrawn", async || heard(&mut world, PREFIX6).await.is_empty()).await;
    // Another prefix, another neighbour, and other words for the first one.
    part.own.push("203.0.113.0/24".parse().unwrap());
    part.prefixes[0].communities.clear();
    part.peers[0].prepend = 3;
    part.peers.push(peer("third", "10.0.0.9"));
    set(&mut part, Announcement::Announced);
    edge.apply(&part, &network.file).await.unwrap();
    until("the new words are heard", async || {
        heard(&mut world, PREFIX4).await.first().is_some_and(|route| route.as_path == [64500; 4])
    })
    .await;
    part.peers.pop();
    set(&mut part, Announcement::Withdrawn);
    edge.apply(&part, &network.file).await.unwrap();
    let after: Vec<String> = sessions(&mut edge).await.into_iter().map(|session| session.since).collect();
    assert_eq!(before, after, "a session ended and began again");
    assert!(edge.routes_exported("transit-1").await.unwrap().unwrap().is_empty());
    assert!(edge.routes_exported("x; down").await.unwrap().is_none());
}

#[tokio::test]
async fn a_hundred_changes_are_two_configurations_and_the_last_one_holds() {
    if !can_run() {
        return;
    }
    let mut network = Network::new();
    let (program, _) = network.start(&format!("{WORLD}{}", neighbour("four", "10.0.0.2", "ttl security on;"))).await;
    let mut world = network.world_bird().await;
    let mut applier = Applier::new(network.edge_bird().await, &network.file);
    let mut part = part(vec![peer("transit", "10.0.0.2")]);
    for at in 0..100 {
        let states = [Announcement::Announced, Announcement::Withdrawn, Announcement::Deprioritised];
        set(&mut part, states[at % states.len()]);
        applier.want(part.clone());
        // A hundred changes in a second; BIRD takes no time.
        let clock = || Duration::from_millis(10 * at as u64);
        if let Some(result) = applier.apply_due(clock).await {
            result.unwrap();
        }
    }
    set(&mut part, Announcement::Deprioritised);
    applier.want(part.clone());
    let at = applier.deadline().unwrap();
    assert_eq!(at, Duration::from_secs(1));
    applier.apply_due(|| at).await.unwrap().unwrap();
    assert!(applier.apply_due(|| at * 100).await.is_none() && applier.deadline().is_none());
    assert_eq!(network.edge.log(program).matches("Reconfiguring").count(), 2);
    assert_eq!(
        applier.bird().announced().await.unwrap(),
        part.prefixes.iter().map(|one| (one.net, one.state)).collect()
    );
    until("the last state is heard", async || {
        let heard = heard(&mut world, PREFIX4).await;
        heard.first().is_some_and(|route| route.communities.contains(&Community::GRACEFUL_SHUTDOWN))
    })
    .await;
}
