//! The pods behind a tunnel, as the connector knows them.

use sallyport_api::Secret;
use sallyport_connector::{
    ClientAffinity, Endpoint, EndpointState, MAX_ENDPOINTS, OriginPool, OriginTls, Service, TunnelCredential,
};
use sallyport_model::{OriginAddr, TunnelId};
use tracing::warn;

use super::{PodPool, PodTls, TunnelKey, TunnelOptions};

/// The pool of these pods.
///
/// # Errors
/// There are too many.
pub(super) fn pool(key: &TunnelKey, pods: &PodPool) -> anyhow::Result<OriginPool> {
    let (endpoints, affinity) = parts(key, pods);
    Ok(OriginPool::new(endpoints, &affinity)?)
}

/// Replaces the pods; requests that run go on.
pub(super) fn replace(pool: &OriginPool, key: &TunnelKey, pods: &PodPool) {
    let (endpoints, affinity) = parts(key, pods);
    if let Err(error) = pool.replace(endpoints, &affinity) {
        warn!(%error, "the pods of a tunnel were not changed");
    }
}

fn parts(key: &TunnelKey, pods: &PodPool) -> (Vec<Endpoint>, ClientAffinity) {
    let endpoints = pods.endpoints.iter().take(MAX_ENDPOINTS).map(|(address, is_draining)| Endpoint {
        address: OriginAddr { host: address.ip().to_string(), port: address.port() },
        state: if *is_draining { EndpointState::Draining } else { EndpointState::Ready },
    });
    let affinity = match pods.is_sticky {
        // All replicas have the same key, so a client comes to the same pod whichever replica carries it.
        true => ClientAffinity::Address { key: *key.socket.as_bytes() },
        false => ClientAffinity::None,
    };
    (endpoints.collect(), affinity)
}

/// The service of a tunnel.
pub(super) fn service(
    tunnel: TunnelId,
    credential: &Secret,
    pods: &OriginPool,
    pool: &PodPool,
    options: &TunnelOptions,
) -> Service {
    let credential = credential.expose().to_owned();
    Service {
        tunnel: TunnelCredential { tunnel, credential, request_log: false, origin: None, spreads: true },
        origin: pods.clone().into(),
        origin_tls: pool.tls.as_ref().map(tls),
        connect_timeout: pool.connect_timeout.unwrap_or(options.connect_timeout),
    }
}

fn tls(tls: &PodTls) -> OriginTls {
    let PodTls { server_name, pin } = tls;
    let pinned = pin.as_ref().and_then(|pin| {
        let parsed = pin.parse();
        if parsed.is_err() {
            // core/kube refuses such annotations; a wrong pin must not mean any certificate.
            warn!("a fingerprint cannot be used: a certificate of a public authority is expected instead");
        }
        parsed.ok()
    });
    pinned.map_or_else(OriginTls::system, OriginTls::pinned).with_server_name(server_name.clone())
}
