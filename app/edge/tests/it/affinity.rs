//! Weights of origins, and affinity of clients to an origin.

use std::collections::HashMap;

use http::Response;
use sallyport_model::{Affinity, SocketType};
use tokio::io::AsyncWriteExt;

use crate::{
    flows::{ask, connect, connect_from, service},
    harness::*,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl TestSocket {
    /// Sets the weight of the tunnel at this index.
    fn weigh(&mut self, world: &World, at: usize, weight: u16) {
        self.route.tunnels[at].weight = weight;
        world.routes.put(self.route.clone());
    }
}

async fn counts(world: &World, socket: &TestSocket, requests: usize) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for _ in 0..requests {
        *counts.entry(world.get(socket, "/").await.text().to_owned()).or_insert(0) += 1;
    }
    counts
}

#[tokio::test]
async fn requests_follow_the_weights_of_tunnels() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _a = world.tunnel(&mut socket, named_origin("a").await).await;
    let _b = world.tunnel(&mut socket, named_origin("b").await).await;
    socket.weigh(&world, 0, 300);
    assert_eq!(counts(&world, &socket, 20).await, HashMap::from([("a".to_owned(), 15), ("b".to_owned(), 5)]));
    socket.weigh(&world, 0, 100);
    assert_eq!(counts(&world, &socket, 20).await, HashMap::from([("a".to_owned(), 10), ("b".to_owned(), 10)]));
    socket.weigh(&world, 0, 0);
    assert_eq!(counts(&world, &socket, 5).await, HashMap::from([("b".to_owned(), 5)]), "0 drains");
}

/// An origin that responds with its name and the cookies of the request.
async fn cookie_origin(name: &'static str) -> std::net::SocketAddr {
    origin(move |request| async move {
        let cookies: Vec<_> = request.headers().get_all("cookie").iter().map(|v| v.to_str().unwrap()).collect();
        Response::new(text(format!("{name} got {}", cookies.join("|"))))
    })
    .await
}

async fn get_with(world: &World, socket: &TestSocket, cookie: &str) -> HttpResponse {
    let head = format!("GET / HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\n\r\n", socket.host());
    world.raw(socket, head.as_bytes()).await
}

#[tokio::test]
async fn a_cookie_keeps_a_client_at_one_origin_until_that_origin_leaves() {
    let world = World::start().await;
    let mut socket = world.socket();
    let mut connectors = HashMap::new();
    for name in NAMES {
        connectors.insert(name.to_owned(), world.tunnel(&mut socket, cookie_origin(name).await).await);
    }
    assert!(world.get(&socket, "/").await.header("set-cookie").is_none(), "the socket has no affinity");
    socket.set(&world, |settings| settings.affinity = Affinity::Cookie);
    let first = world.get(&socket, "/").await;
    let set = first.header("set-cookie").unwrap().to_owned();
    let cookie = set.split(';').next().unwrap().to_owned();
    assert!(set.starts_with("__Host-sallyport-affinity="), "{set}");
    for attribute in ["Secure", "HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Domain"), "{set}");
    let home = first.text().split(' ').next().unwrap().to_owned();
    for _ in 0..10 {
        let response = get_with(&world, &socket, &format!("theme=dark; {cookie}; lang=en")).await;
        assert_eq!(response.text(), format!("{home} got theme=dark; lang=en"), "ours does not reach the origin");
        assert!(response.header("set-cookie").is_none(), "the client has the right cookie");
    }
    let gone = connectors.remove(&home).unwrap();
    let tunnel = gone.tunnel;
    gone.stop().await;
    until("the tunnel is gone", || world.directory.get(tunnel).is_none()).await;
    let moved = get_with(&world, &socket, &cookie).await;
    assert_ne!(moved.text().split(' ').next().unwrap(), home);
    let new = moved.header("set-cookie").expect("a new cookie").split(';').next().unwrap().to_owned();
    assert_ne!(new, cookie);
    let new_home = moved.text().split(' ').next().unwrap().to_owned();
    for _ in 0..3 {
        assert!(get_with(&world, &socket, &new).await.text().starts_with(&new_home));
    }
    let forged = get_with(&world, &socket, "__Host-sallyport-affinity=AAAAAAAAAAAAAAAAAAAAAA").await;
    assert!(forged.status == 200 && forged.header("set-cookie").is_some(), "rubbish is replaced");
}

#[tokio::test]
async fn tcp_clients_keep_their_origin_by_address() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let mut connectors = Vec::new();
    for name in &NAMES[..3] {
        let origin = service(move |mut stream: tokio::net::TcpStream| async move {
            let _ = stream.write_all(name.as_bytes()).await;
        })
        .await;
        connectors.push((*name, world.tunnel(&mut socket, origin).await));
    }
    socket.set(&world, |settings| settings.affinity = Affinity::Address);
    drop(connect(addr).await);
    let origin_of = async |client: u8| {
        let response = ask(connect_from([127, 0, 0, client], addr).await, b"").await;
        String::from_utf8(response).unwrap()
    };
    let mut homes = HashMap::new();
    for client in 10..40 {
        let home = origin_of(client).await;
        for _ in 0..2 {
            assert_eq!(origin_of(client).await, home, "client {client}");
        }
        homes.insert(client, home);
    }
    let used: std::collections::HashSet<_> = homes.values().cloned().collect();
    assert_eq!(used.len(), 3, "30 clients are shared out: {homes:?}");
    let (gone, connector) = connectors.remove(1);
    let tunnel = connector.tunnel;
    connector.stop().await;
    until("the tunnel is gone", || world.directory.get(tunnel).is_none()).await;
    for (client, home) in homes {
        let now = origin_of(client).await;
        if home == gone {
            assert_ne!(now, gone);
        } else {
            assert_eq!(now, home, "client {client} had no reason to move");
        }
    }
}

#[tokio::test]
async fn http_clients_keep_their_origin_by_address() {
    let world = World::start().await;
    let mut socket = world.socket();
    let mut connectors = Vec::new();
    for name in NAMES {
        connectors.push(world.tunnel(&mut socket, named_origin(name).await).await);
    }
    socket.set(&world, |settings| settings.affinity = Affinity::Address);
    assert_eq!(counts(&world, &socket, 8).await.len(), 1);
}
