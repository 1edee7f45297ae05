//! RPKI by a real server of it.

use std::{fs, process::Command};

use sallyport_anycast::model::Announcement;

use crate::network::{Network, PREFIX4, PREFIX6, WORLD, can_run, heard, neighbour, part, peer, set, until};

fn roas(origin_of_4: u32) -> String {
    format!(
        r#"{{"roas":[{{"prefix":"{PREFIX4}","maxLength":24,"asn":"AS{origin_of_4}","ta":"test"}},
            {{"prefix":"{PREFIX6}","maxLength":48,"asn":"AS64500","ta":"test"}}]}}"#
    )
}

#[tokio::test]
async fn what_rpki_calls_invalid_is_not_announced() {
    if !can_run() {
        return;
    }
    if Command::new("stayrtr").arg("-version").output().is_err() {
        println!("skipped: this test needs Debian's package stayrtr");
        return;
    }
    let mut network = Network::new();
    let list = network.edge.path("roas.json");
    fs::write(&list, roas(64999)).unwrap();
    let list_path = list.to_str().unwrap().to_owned();
    let args =
        ["-cache", &list_path, "-checktime=false", "-bind", "127.0.0.1:8282", "-refresh", "1", "-metrics.addr", ""];
    let server = network.edge.start("stayrtr", &args);
    let world = [
        WORLD.to_owned(),
        neighbour("four", "10.0.0.2", "ttl security on;"),
        neighbour("six", "fd00::2", "ttl security on;"),
    ];
    network.start(&world.concat()).await;
    let (mut edge, mut world) = (network.edge_bird().await, network.world_bird().await);
    let mut part = part(vec![peer("four", "10.0.0.2"), peer("six", "fd00::2")]);
    part.rpki = vec!["127.0.0.1:8282".parse().unwrap()];
    // RPKI is known before anything is announced.
    edge.apply(&part, &network.file).await.unwrap();
    until("both sessions stand", async || {
        edge.protocols().await.unwrap().iter().filter(|one| one.is_established()).count() == 2
    })
    .await;
    until("RPKI is known", async || {
        let rows = edge.request("show route table sp_roa4").await.unwrap();
        rows.lines.iter().any(|line| line.text.contains("AS64999"))
    })
    .await;
    set(&mut part, Announcement::Announced);
    let applied = edge.apply(&part, &network.file).await.unwrap();
    let said: Vec<String> = applied.unheard.iter().map(ToString::to_string).collect();
    assert_eq!(said, [format!("{PREFIX4} is not announced to four: RPKI calls it invalid")], "{applied:?}");
    until("the valid one is heard", async || !heard(&mut world, PREFIX6).await.is_empty()).await;
    assert!(heard(&mut world, PREFIX4).await.is_empty());

    // The list is mended: BIRD announces by itself.
    fs::write(&list, roas(64500)).unwrap();
    network.edge.signal(server, rustix::process::Signal::HUP);
    until("the mended one is heard", async || !heard(&mut world, PREFIX4).await.is_empty()).await;
}
