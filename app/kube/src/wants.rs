//! The tunnels that a replica is to hold: of each exposed port with a socket, with its pods.

use std::time::Duration;

use sallyport_api::Socket;
use sallyport_kube_model::{LABEL_REPLICA, Origin};
use sallyport_model::{DisplayName, MAX_DISPLAY_NAME_CHARS, PathPrefix, SocketType};

use crate::{
    sockets::KnownSockets,
    tunnels::{PodPool, PodTls, TunnelKey, TunnelSettings, TunnelWanted, WantedTunnels},
    watch::{SlicesByService, View},
};

/// The tunnels of a replica.
pub(crate) fn wanted(view: &View, known: &KnownSockets, slices: &SlicesByService, replica: &str) -> WantedTunnels {
    let mut all = WantedTunnels::new();
    for exposure in view.desired() {
        let Some(socket) = known.by_key.get(&exposure.key) else { continue };
        let mut labels = exposure.key.labels(&view.settings.cluster, view.settings.installation.as_deref());
        labels.insert(LABEL_REPLICA.to_owned(), replica.to_owned());
        for origin in &exposure.origins {
            let part = if origin.path.prefix == PathPrefix::default() {
                String::new()
            } else {
                origin.path.prefix.to_string()
            };
            let Some(name) = tunnel_name(socket, &part, replica) else { continue };
            let key = TunnelKey { socket: socket.id, part };
            all.insert(
                key,
                TunnelWanted {
                    name,
                    labels: labels.clone(),
                    settings: settings(origin, socket.socket_type),
                    pool: pool(origin, socket.socket_type, slices),
                },
            );
        }
    }
    all
}

fn settings(origin: &Origin, socket_type: SocketType) -> TunnelSettings {
    let has_paths = matches!(socket_type, SocketType::Http | SocketType::Https);
    TunnelSettings {
        weight: origin.weight,
        path: Some(origin.path.prefix.clone()).filter(|path| has_paths && *path != PathPrefix::default()),
        rewrite_path: origin.path.rewrite.clone().filter(|_| has_paths),
        capacity: origin.capacity.clone(),
    }
}

fn pool(origin: &Origin, socket_type: SocketType, slices: &SlicesByService) -> PodPool {
    let service = &origin.target.service;
    let tls = (socket_type == SocketType::Https).then(|| PodTls {
        server_name: origin
            .tls
            .server_name
            .clone()
            .unwrap_or_else(|| format!("{}.{}.svc", service.name, service.namespace)),
        pin: origin.tls.pin.clone(),
    });
    PodPool {
        endpoints: slices.endpoints(&origin.target),
        is_sticky: origin.is_client_ip_affine,
        tls,
        connect_timeout: origin.connect_timeout_millis.map(Duration::from_millis),
    }
}

/// The name of a tunnel, which no other tunnel of the organisation has: that of its replica, with a part of the
/// socket's id, and the path.
fn tunnel_name(socket: &Socket, part: &str, replica: &str) -> Option<DisplayName> {
    let id = socket.id.to_string();
    let tail = format!(" {}{part}", id.get(..13).unwrap_or(&id));
    let room = MAX_DISPLAY_NAME_CHARS.saturating_sub(tail.chars().count());
    let head: String = if replica.chars().count() <= room {
        replica.to_owned()
    } else {
        // The end of a pod's name is what differs.
        let skipped = replica.chars().count() - room;
        replica.chars().skip(skipped).collect()
    };
    let name: String = format!("{head}{tail}").chars().take(MAX_DISPLAY_NAME_CHARS).collect();
    name.trim().parse().ok()
}
