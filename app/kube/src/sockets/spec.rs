//! Sockets of the API as core/kube has them, and back.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_api::{CreateSocket, Socket, UpdateSocket};
use sallyport_kube_model::{Field, SocketSpec};
use sallyport_model::{Affinity, SocketSettings};

/// How a socket is.
pub(super) fn of_socket(socket: &Socket) -> SocketSpec {
    SocketSpec {
        name: socket.name.clone(),
        socket_type: socket.socket_type,
        origin_protocol: socket.origin_protocol,
        public_port: socket.port,
        label: socket.label(),
        settings: SocketSettings {
            proxy_protocol: socket.proxy_protocol,
            tls_mode: socket.tls_mode,
            alpn: socket.alpn.clone(),
            health_check: socket.health_check.clone().and_then(|check| check.try_into().ok()),
            affinity: socket.affinity,
            limits: socket.limits,
            access: socket.access.clone(),
            amplification_guard: socket.amplification_guard,
            identity: socket.identity.clone(),
            regions: socket.regions.clone(),
            host_header: socket.host_header.clone(),
            headers: socket.headers.clone(),
        },
        domains: socket.domains.clone(),
        policies: socket.policies.clone(),
    }
}

/// The value, unless it is the default.
fn unless_default<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// The request for a new socket.
pub(super) fn to_create(spec: &SocketSpec, labels: &BTreeMap<String, String>) -> CreateSocket {
    let settings = spec.settings.clone();
    CreateSocket {
        origin_protocol: spec.origin_protocol,
        port: spec.public_port,
        proxy_protocol: unless_default(settings.proxy_protocol),
        tls_mode: unless_default(settings.tls_mode),
        alpn: unless_default(settings.alpn),
        health_check: settings.health_check.map(Into::into),
        affinity: Some(settings.affinity).filter(|affinity| *affinity != Affinity::None),
        limits: unless_default(settings.limits),
        access: unless_default(settings.access),
        amplification_guard: (!settings.amplification_guard).then_some(false),
        identity: settings.identity,
        regions: unless_default(settings.regions),
        host_header: settings.host_header,
        headers: unless_default(settings.headers),
        label: spec.label.clone(),
        domains: unless_default(spec.domains.clone()),
        policies: unless_default(spec.policies.clone()),
        labels: crate::control::labels(labels),
        ..CreateSocket::new(spec.name.clone(), spec.socket_type)
    }
}

/// The request that changes these fields; policies are attached and detached one by one.
pub(super) fn to_update(
    fields: &BTreeSet<Field>,
    spec: &SocketSpec,
    labels: &BTreeMap<String, String>,
) -> UpdateSocket {
    let mut update = UpdateSocket::default();
    let settings = spec.settings.clone();
    for field in fields {
        match field {
            Field::Name => update.name = Some(spec.name.clone()),
            Field::Type => update.socket_type = Some(spec.socket_type),
            Field::OriginProtocol => update.origin_protocol = Some(spec.origin_protocol),
            Field::ProxyProtocol => update.proxy_protocol = Some(unless_default(settings.proxy_protocol)),
            Field::TlsMode => update.tls_mode = Some(unless_default(settings.tls_mode)),
            Field::Alpn => update.alpn = Some(unless_default(settings.alpn.clone())),
            Field::HealthCheck => update.health_check = Some(settings.health_check.clone().map(Into::into)),
            Field::Affinity => update.affinity = Some(Some(settings.affinity)),
            Field::Limits => update.limits = Some(unless_default(settings.limits)),
            Field::Access => update.access = Some(unless_default(settings.access.clone())),
            Field::AmplificationGuard => update.amplification_guard = Some(Some(settings.amplification_guard)),
            Field::Identity => update.identity = Some(settings.identity.clone()),
            Field::Regions => update.regions = Some(unless_default(settings.regions.clone())),
            Field::HostHeader => update.host_header = Some(settings.host_header.clone()),
            Field::Headers => update.headers = Some(unless_default(settings.headers.clone())),
            Field::Domains => update.domains = Some(spec.domains.clone()),
            Field::Labels => update.labels = Some(Some(crate::control::labels(labels))),
            Field::Policies => {}
        }
    }
    // An access rule that is gone was taken out of the annotations on purpose.
    update.force = fields.contains(&Field::Identity) && spec.settings.identity.is_none();
    update
}
