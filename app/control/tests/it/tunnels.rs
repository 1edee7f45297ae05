//! Tunnels: making, seeing, new credentials, deleting.

use std::sync::{Arc, Mutex};

use http::StatusCode;
use sallyport_api::{CreatedTunnel, Page, Socket, Tunnel, TunnelStatus};
use sallyport_bus::{Answer, Ask, Responder, TunnelFigures};
use sallyport_model::{
    CredentialHash, HealthFailure, HealthFailureCode, LinkReport, LinkStatus, OriginHealth, SocketId, TunnelId,
    TunnelPresence,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::harness::{Api, START};

fn hash(credential: &sallyport_api::Secret) -> CredentialHash {
    CredentialHash(Sha256::digest(credential.expose()).into())
}

/// The tunnels that edges would admit, with their credentials.
fn credentials(api: &Api, socket: SocketId) -> Vec<(TunnelId, CredentialHash)> {
    let route = api.routes.get(socket).unwrap();
    route.tunnels.iter().map(|tunnel| (tunnel.id, tunnel.credential)).collect()
}

#[tokio::test]
async fn a_tunnel_gets_a_credential_that_edges_know() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let path = format!("/v1/sockets/{}/tunnels", socket.dns_name);
    let response = api.post(&path, Some(&token), json!({})).await;
    let made: CreatedTunnel = response.read(StatusCode::CREATED);
    let at = format!("/v1/sockets/{}/tunnels/{}", socket.id, made.details.id);
    assert_eq!(response.header("location"), Some(at.as_str()));
    assert!(made.credential.expose().starts_with("spc_"));
    assert_eq!((made.connect.host.as_str(), made.connect.port), ("tunnel.localhost", 8443));
    assert_eq!(credentials(&api, socket.id), vec![(made.details.id, hash(&made.credential))]);

    let seen = api.get(&at, Some(&token)).await;
    assert!(!seen.text.contains("credential") && !seen.text.contains(made.credential.expose()));
    assert_eq!(seen.read::<Tunnel>(StatusCode::OK), made.details);
    assert_eq!(made.details.status, TunnelStatus::Down);
    let listed: Page<Tunnel> = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((listed.items, listed.next), (vec![made.details], None));
}

/// A connector that holds the tunnel.
fn presence(tunnel: TunnelId, socket: SocketId) -> TunnelPresence {
    TunnelPresence {
        tunnel,
        socket,
        connector_addr: "192.0.2.7:51820".parse().unwrap(),
        agent: "sallyport/0.1.0".to_owned(),
        since: START + 5,
        home: None,
        origin: None,
        host: Some("shed".to_owned()),
        spread: false,
        health: OriginHealth::default(),
        failure: None,
    }
}

#[tokio::test]
async fn a_tunnel_is_up_while_an_edge_holds_it() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let tunnel = api.tunnel(&token, &socket).await.details;
    api.tunnel(&token, &socket).await;
    let TunnelPresence { agent, connector_addr, .. } = presence(tunnel.id, socket.id);
    api.directory.arrived(presence(tunnel.id, socket.id));
    let path = format!("/v1/sockets/{}", socket.id);
    let seen: Tunnel = api.get(&format!("{path}/tunnels/{}", tunnel.id), Some(&token)).await.read(StatusCode::OK);
    assert_eq!(
        (seen.status, seen.connector_addr, seen.agent, seen.since.map(time::OffsetDateTime::unix_timestamp)),
        (TunnelStatus::Up, Some(connector_addr), Some(agent), Some(START + 5))
    );
    assert_eq!(seen.host.as_deref(), Some("shed"));
    let seen: Socket = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((seen.tunnels_total, seen.tunnels_up), (2, 1));
    api.directory.checked(tunnel.id, Some(false));
    let path_of_tunnel = format!("{path}/tunnels/{}", tunnel.id);
    let checked: Tunnel = api.get(&path_of_tunnel, Some(&token)).await.read(StatusCode::OK);
    assert_eq!(checked.healthy, Some(false));
    let failure = HealthFailure::new(HealthFailureCode::Status, "status 503 for GET /up", START + 9);
    api.directory.finds(tunnel.id, || (OriginHealth::Unwell, Some(failure)));
    let checked: Tunnel = api.get(&path_of_tunnel, Some(&token)).await.read(StatusCode::OK);
    let failing = checked.failure.unwrap();
    assert_eq!((failing.code.as_str(), failing.message.as_str()), ("status", "status 503 for GET /up"));
    assert_eq!(failing.since.unix_timestamp(), START + 9);
    let seen: Socket = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((seen.origins_failing, seen.failure), (1, Some(failing)));
    api.directory.finds(tunnel.id, || (OriginHealth::Well, None));
    let seen: Socket = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((seen.origins_failing, seen.failure), (0, None));
    api.directory.left(tunnel.id);
    let seen: Socket = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((seen.tunnels_total, seen.tunnels_up), (2, 0));
}

/// The edge of this machine, with these tunnels.
#[derive(Default)]
struct Holder(Mutex<Vec<TunnelFigures>>);

impl Responder for Holder {
    fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Tunnels { .. } => Answer::Tunnels(self.0.lock().unwrap().clone()),
            _ => Answer::NotUnderstood,
        }
    }
}

#[tokio::test]
async fn a_tunnel_has_the_links_that_its_connector_reports_to_the_edge() {
    let holder = Arc::new(Holder::default());
    let api = Api::start_beside(holder.clone()).await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let tunnel = api.tunnel(&token, &socket).await.details;
    let at = format!("/v1/sockets/{}/tunnels/{}", socket.id, tunnel.id);
    api.directory.arrived(presence(tunnel.id, socket.id));
    let link = LinkReport {
        name: "wwan0".to_owned(),
        local: Some([10, 0, 0, 2].into()),
        status: LinkStatus::Silent,
        rtt_us: Some(12_400),
        loss_permille: Some(15),
        bytes_sent: 1_000,
        bytes_received: 20,
        path_mtu_bytes: Some(1_440),
        header_bytes: Some(52),
        is_metered: true,
        is_standby: false,
    };
    let figures = TunnelFigures { tunnel: tunnel.id, is_well: None, rtt_us: None, live: 0, links: vec![link] };
    *holder.0.lock().unwrap() = vec![figures];
    let seen: Tunnel = api.get(&at, Some(&token)).await.read(StatusCode::OK);
    assert_eq!(
        serde_json::to_value(&seen.links).unwrap(),
        json!([{
            "name": "wwan0", "local": "10.0.0.2", "status": "silent", "round_trip_ms": 12.4, "loss_permille": 15,
            "bytes_sent": 1_000, "bytes_received": 20, "path_mtu_bytes": 1_440, "header_bytes": 52,
            "metered": true, "standby": false
        }])
    );
    holder.0.lock().unwrap()[0].links.clear();
    let of_older_connector = api.get(&at, Some(&token)).await;
    assert!(!of_older_connector.text.contains("links"), "{}", of_older_connector.text);
}

#[tokio::test]
async fn a_new_credential_takes_the_place_of_the_old_one() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let made = api.tunnel(&token, &socket).await;
    let path = format!("/v1/sockets/{}/tunnels/{}/credential", socket.id, made.details.id);
    let next: CreatedTunnel = api.send("POST", &path, Some(&token), None).await.read(StatusCode::OK);
    assert_ne!(next.credential, made.credential);
    assert_eq!(next.details.id, made.details.id);
    assert_eq!(credentials(&api, socket.id), vec![(made.details.id, hash(&next.credential))]);
}

#[tokio::test]
async fn a_deleted_tunnel_is_gone_at_the_edges_too() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let (gone, kept) = (api.tunnel(&token, &socket).await.details.id, api.tunnel(&token, &socket).await.details.id);
    let path = format!("/v1/sockets/{}/tunnels/{gone}", socket.id);
    assert_eq!(api.send("DELETE", &path, Some(&token), None).await.status, StatusCode::NO_CONTENT);
    let left: Vec<_> = api.routes.get(socket.id).unwrap().tunnels.iter().map(|tunnel| tunnel.id).collect();
    assert_eq!(left, vec![kept]);
    for method in ["GET", "DELETE"] {
        api.send(method, &path, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    let credential = format!("{path}/credential");
    api.send("POST", &credential, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn a_socket_has_at_most_256_tunnels() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    for _ in 0..256 {
        api.tunnel(&token, &socket).await;
    }
    let path = format!("/v1/sockets/{}/tunnels", socket.id);
    let detail =
        api.send("POST", &path, Some(&token), None).await.assert_problem(StatusCode::CONFLICT, "limit-reached");
    assert!(detail.contains("256 tunnels"), "{detail}");
    let page: Page<Tunnel> = api.get(&format!("{path}?limit=100"), Some(&token)).await.read(StatusCode::OK);
    assert_eq!((page.items.len(), page.next.is_some()), (100, true));
    let no_such = "/v1/sockets/no-such-1000/tunnels";
    api.send("POST", no_such, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}
