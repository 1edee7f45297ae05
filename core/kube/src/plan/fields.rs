//! What differs between a wanted socket and the one that is there.

use std::collections::BTreeSet;

use super::OwnedSocket;
use crate::{LABEL_POLICIES, SocketSpec};

/// A part of a socket that can change, as the API names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// `name`
    Name,
    /// `type`
    Type,
    /// `origin_protocol`
    OriginProtocol,
    /// `proxy_protocol`
    ProxyProtocol,
    /// `tls_mode`
    TlsMode,
    /// `alpn`
    Alpn,
    /// `health_check`
    HealthCheck,
    /// `affinity`
    Affinity,
    /// `limits`
    Limits,
    /// `access`
    Access,
    /// `amplification_guard`
    AmplificationGuard,
    /// `identity`
    Identity,
    /// `regions`
    Regions,
    /// `host_header`
    HostHeader,
    /// `headers`
    Headers,
    /// `domains`
    Domains,
    /// The attached policies.
    Policies,
    /// `labels`
    Labels,
}

/// Whether the socket cannot become the wanted one: its type is one with a port and the other is not, or its public port
/// or label is another one.
pub(super) fn needs_another(wanted: &SocketSpec, there: &SocketSpec) -> bool {
    wanted.socket_type.has_port() != there.socket_type.has_port()
        || wanted.socket_type.has_port() && wanted.public_port.is_some() && wanted.public_port != there.public_port
        || wanted.label.is_some() && wanted.label != there.label
}

/// What differs. Lists without an order are compared without one.
pub(super) fn differing(wanted: &SocketSpec, there: &SocketSpec) -> BTreeSet<Field> {
    let (ours, theirs) = (&wanted.settings, &there.settings);
    let is_other = [
        (Field::Name, wanted.name != there.name),
        (Field::Type, wanted.socket_type != there.socket_type),
        (Field::OriginProtocol, wanted.origin_protocol != there.origin_protocol),
        (Field::ProxyProtocol, ours.proxy_protocol != theirs.proxy_protocol),
        (Field::TlsMode, ours.tls_mode != theirs.tls_mode),
        (Field::Alpn, ours.alpn != theirs.alpn),
        (Field::HealthCheck, ours.health_check != theirs.health_check),
        (Field::Affinity, ours.affinity != theirs.affinity),
        (Field::Limits, ours.limits != theirs.limits),
        (Field::Access, ours.access != theirs.access),
        (Field::AmplificationGuard, ours.amplification_guard != theirs.amplification_guard),
        (Field::Identity, ours.identity != theirs.identity),
        (Field::Regions, ours.regions != theirs.regions),
        (Field::HostHeader, ours.host_header != theirs.host_header),
        (Field::Headers, ours.headers != theirs.headers),
        (Field::Domains, sorted(&wanted.domains) != sorted(&there.domains)),
    ];
    is_other.into_iter().filter(|(_, is_other)| *is_other).map(|(field, _)| field).collect()
}

fn sorted(list: &[String]) -> BTreeSet<String> {
    list.iter().map(|one| one.to_lowercase()).collect()
}

/// The policies to attach, and those to detach: the program attached them before, and they are no longer wanted.
/// Policies of people, and those of the whole organisation, stay.
pub(super) fn policies(wanted: &SocketSpec, socket: &OwnedSocket) -> (Vec<String>, Vec<String>) {
    let there = &socket.spec.policies;
    let attach = wanted.policies.iter().filter(|policy| !there.contains(policy)).cloned().collect();
    let own = socket.labels.get(LABEL_POLICIES).map(String::as_str).unwrap_or_default();
    let is_left =
        |policy: &&str| !wanted.policies.iter().any(|one| one == policy) && there.iter().any(|one| one == policy);
    (attach, own.split(',').filter(is_left).map(str::to_owned).collect())
}
