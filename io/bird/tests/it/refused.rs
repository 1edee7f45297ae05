//! Sessions that must not stand, beside one that stands.

use sallyport_anycast::{
    bird::{Protocol, protocol_of},
    model::{Announcement, PeerRole},
};

use crate::network::{Network, PREFIX4, WORLD, can_run, heard, neighbour, part, peer, set, until};

#[tokio::test]
async fn wrong_passwords_roles_hops_and_floods_end_sessions() {
    if !can_run() {
        return;
    }
    let mut network = Network::new();
    let routes: String = (0..20).map(|number| format!("route 9.{number}.0.0/16 blackhole; ")).collect();
    network.start(&format!("{WORLD}{}", neighbour("w", "10.0.0.2", "ttl security on; password \"right\";"))).await;
    // One BIRD has one session with the edge's address, so each of the others is a BIRD of its own.
    let others = [
        ("password", neighbour("w", "10.0.0.3", "ttl security on; password \"wrong\";")),
        // The edge says that the neighbour is its provider, and so does the neighbour of the edge.
        ("role", neighbour("w", "10.0.0.4", "ttl security on; local role customer;")),
        // Packets come with a small TTL.
        ("hops", neighbour("w", "10.0.0.5", "")),
        ("flood", format!("protocol static {{ ipv4; {routes} }}\n{}", neighbour("w", "10.0.0.6", "ttl security on;"))),
    ];
    for (name, text) in others {
        network.world.start_another_bird(name, &format!("{}{text}", WORLD.replace("protocol bfd { }", "")));
    }
    let (mut edge, mut world) = (network.edge_bird().await, network.world_bird().await);
    let mut peers: Vec<_> = [("good", 2), ("password", 3), ("role", 4), ("hops", 5), ("flood", 6)]
        .map(|(name, host)| peer(name, &format!("10.0.0.{host}")))
        .into();
    (peers[0].password, peers[1].password) = (Some("right".to_owned()), Some("right".to_owned()));
    peers[2].role = Some(PeerRole::Provider);
    let mut part = part(peers);
    set(&mut part, Announcement::Announced);
    edge.apply(&part, &network.file).await.unwrap();
    until("the good one stands, and the others said why not", async || {
        let found = edge.protocols().await.unwrap();
        let of = |name: &str| found.iter().find(|one| one.name == protocol_of(name)).unwrap();
        of("good").is_established()
            && format!("{} {:?}", of("role").info, of("role").last_error).contains("Role mismatch")
            && of("flood").state == "down"
    })
    .await;
    until("the prefix is heard", async || !heard(&mut world, PREFIX4).await.is_empty()).await;
    let found = edge.protocols().await.unwrap();
    let standing: Vec<&str> =
        found.iter().filter(|one| one.is_established()).map(|one: &Protocol| one.name.as_str()).collect();
    assert_eq!(standing, ["sp_peer_good"]);
    let flood = found.iter().find(|one| one.name == "sp_peer_flood").unwrap();
    let said = format!("{} {:?}", flood.info, flood.last_error);
    assert!(said.to_lowercase().contains("limit"), "{said}");
    // The routes that the others sent are nowhere.
    assert!(edge.imported().await.unwrap().is_empty());

    // The operator allows more, and begins the session again.
    part.peers[4].max_prefixes = 100;
    edge.apply(&part, &network.file).await.unwrap();
    edge.enable("flood").await.unwrap();
    until("the session stands", async || {
        edge.protocols().await.unwrap().iter().any(|one| one.name == "sp_peer_flood" && one.is_established())
    })
    .await;
}
