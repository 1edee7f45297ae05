//! The configuration of BIRD for an edge.
//!
//! The file has its own tables: no kernel protocol reads them, so no route of it reaches the kernel, and the service
//! addresses stay what they are. Routes that neighbours send are kept if they are of own prefixes, and never sent on.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use ipnet::IpNet;

use super::{EdgePart, Feature, MAX_RPKI_SERVERS, PartPrefix, Version};
use crate::model::{Announcement, Community, MAX_PEERS, MAX_PREFIXES, Peer, PeerError, PeerRole};

/// How often the own number is prepended while a prefix is deprioritised, beside what the neighbour has already.
pub const EXTRA_PREPEND: u8 = 3;
/// The longest configuration, in bytes.
pub const MAX_CONFIGURATION_BYTES: usize = 4 << 20;
/// The second part of the large community that names a site: `LOCAL_AS:1:N`.
pub(crate) const SITE_FUNCTION: u32 = 1;
/// After how long a silent neighbour is down, in seconds. BFD is faster.
const HOLD_SECONDS: u16 = 30;
/// How long neighbours keep routes of a session that breaks off, in seconds: a restart of BIRD is shorter.
const RESTART_SECONDS: u16 = 30;
/// How often the own number may stand in a path that comes back.
const MAX_OWN_IN_PATH: u8 = 32;

/// A configuration, and what this version of BIRD cannot do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The text of the file.
    pub text: String,
    /// What is missing, each in a sentence.
    pub missing: Vec<String>,
}

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// A neighbour that was not checked.
    #[error("the neighbour {0:?} is refused: {1}")]
    Peer(String, PeerError),
    /// Two neighbours with one name.
    #[error("two neighbours of this edge are named {0}")]
    SameName(String),
    /// Two neighbours with one address.
    #[error("two neighbours of this edge have the address {0}")]
    SameAddress(std::net::IpAddr),
    /// Bits after the length.
    #[error("{0} has bits after its length")]
    HostBits(IpNet),
    /// No router id.
    #[error("0.0.0.0 is no router id")]
    RouterId,
    /// Too much.
    #[error(
        "an edge has at most {MAX_PREFIXES} prefixes, {MAX_PEERS} neighbours and {MAX_RPKI_SERVERS} servers of RPKI"
    )]
    TooMany,
    /// Too long.
    #[error("the configuration of BIRD is longer than {MAX_CONFIGURATION_BYTES} bytes")]
    TooLong,
}

/// The name of a neighbour's protocol. Names of neighbours have no `_`, so each has its own.
#[must_use]
pub fn protocol_of(peer: &str) -> String {
    format!("sp_peer_{}", peer.replace('-', "_"))
}

/// The name of the neighbour that has this protocol.
#[must_use]
pub fn peer_of(protocol: &str) -> Option<String> {
    protocol.strip_prefix("sp_peer_").filter(|name| !name.is_empty()).map(|name| name.replace('_', "-"))
}

/// Writes the configuration of an edge.
///
/// # Errors
/// Something in it was not checked before: nothing is written that BIRD could take for another statement.
pub fn configuration(part: &EdgePart, version: Version) -> Result<Configuration, ConfigurationError> {
    check(part)?;
    let mut text = String::with_capacity(4096);
    // A String takes everything.
    write_all(&mut text, part, version).map_err(|_| ConfigurationError::TooLong)?;
    if text.len() > MAX_CONFIGURATION_BYTES {
        return Err(ConfigurationError::TooLong);
    }
    Ok(Configuration { text, missing: missing(part, version) })
}

fn check(part: &EdgePart) -> Result<(), ConfigurationError> {
    let nets = part.prefixes.len().max(part.own.len());
    if nets > MAX_PREFIXES || part.peers.len() > MAX_PEERS || part.rpki.len() > MAX_RPKI_SERVERS {
        return Err(ConfigurationError::TooMany);
    }
    if part.router_id.is_unspecified() {
        return Err(ConfigurationError::RouterId);
    }
    let mut nets = part.prefixes.iter().map(|prefix| &prefix.net).chain(&part.own);
    if let Some(net) = nets.find(|net| net.trunc() != **net) {
        return Err(ConfigurationError::HostBits(*net));
    }
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for peer in &part.peers {
        peer.check().map_err(|error| ConfigurationError::Peer(peer.name.chars().take(64).collect(), error))?;
        if !names.insert(&peer.name) {
            return Err(ConfigurationError::SameName(peer.name.clone()));
        }
        if !addresses.insert(peer.address) {
            return Err(ConfigurationError::SameAddress(peer.address));
        }
    }
    Ok(())
}

fn write_all(text: &mut String, part: &EdgePart, version: Version) -> fmt::Result {
    let region = part.region.as_ref().map_or_else(String::new, |region| format!(" of the region {region}"));
    writeln!(text, "# Written by sallyport for the edge {}{region}, and written anew with each change.", part.edge)?;
    writeln!(text, "router id {};\n", part.router_id)?;
    writeln!(text, "attribute int sp_low;\n")?;
    for family in [4, 6] {
        writeln!(text, "ipv{family} table sp_anycast{family};")?;
        writeln!(text, "roa{family} table sp_roa{family};")?;
    }
    writeln!(text, "\nprotocol device sp_device {{ scan time 10; }}")?;
    if part.peers.iter().any(|peer| peer.bfd.is_some()) {
        writeln!(text, "protocol bfd sp_bfd {{ }}")?;
    }
    for (index, server) in part.rpki.iter().enumerate() {
        let is_address = server.host().parse::<std::net::IpAddr>().is_ok();
        let host = if is_address { server.host().to_owned() } else { format!("\"{}\"", server.host()) };
        writeln!(text, "protocol rpki sp_rpki_{} {{", index + 1)?;
        writeln!(text, "  roa4 {{ table sp_roa4; }};\n  roa6 {{ table sp_roa6; }};")?;
        writeln!(text, "  remote {host} port {};", server.port())?;
        writeln!(text, "  retry keep 10;\n  refresh keep 60;\n  expire keep 7200;\n}}")?;
    }
    for family in [4, 6] {
        write_static(text, part, family)?;
        write_import(text, part, family)?;
    }
    for peer in &part.peers {
        write_export(text, part, peer)?;
        write_peer(text, peer, version)?;
    }
    Ok(())
}

fn family_of(net: &IpNet) -> u8 {
    if matches!(net, IpNet::V4(_)) { 4 } else { 6 }
}

/// The routes that are announced. A change of a route's attributes is an update for neighbours, never a withdrawal.
fn write_static(text: &mut String, part: &EdgePart, family: u8) -> fmt::Result {
    writeln!(text, "\nprotocol static sp_static{family} {{")?;
    writeln!(text, "  ipv{family} {{ table sp_anycast{family}; import all; export none; }};")?;
    for prefix in part.prefixes.iter().filter(|prefix| family_of(&prefix.net) == family) {
        if prefix.state == Announcement::Withdrawn {
            continue;
        }
        write!(text, "  route {} blackhole", prefix.net)?;
        let statements = statements_of(prefix)?;
        if statements.is_empty() {
            writeln!(text, ";")?;
        } else {
            writeln!(text, " {{{statements} }};")?;
        }
    }
    writeln!(text, "}}")
}

fn statements_of(prefix: &PartPrefix) -> Result<String, fmt::Error> {
    let mut text = String::new();
    if prefix.state == Announcement::Deprioritised {
        write!(text, " sp_low = 1;")?;
    }
    for community in &prefix.communities {
        write!(text, " {}", add(*community))?;
    }
    Ok(text)
}

/// What is kept of what neighbours send: own prefixes and their parts, below the own routes.
fn write_import(text: &mut String, part: &EdgePart, family: u8) -> fmt::Result {
    let nets: Vec<String> =
        part.own.iter().filter(|net| family_of(net) == family).map(|net| format!("{net}+")).collect();
    writeln!(text, "\nfilter sp_import{family} {{")?;
    if !nets.is_empty() {
        writeln!(text, "  if net ~ [ {} ] then {{ preference = 10; accept; }}", nets.join(", "))?;
    }
    writeln!(text, "  reject;\n}}")
}

fn add(community: Community) -> String {
    match community {
        Community::Standard(high, low) => format!("bgp_community.add(({high},{low}));"),
        Community::Large(admin, one, two) => format!("bgp_large_community.add(({admin},{one},{two}));"),
    }
}

/// What a neighbour hears: own prefixes alone, and only what RPKI does not call invalid.
fn write_export(text: &mut String, part: &EdgePart, peer: &Peer) -> fmt::Result {
    let family = if peer.address.is_ipv4() { 4 } else { 6 };
    let nets: Vec<String> = part
        .prefixes
        .iter()
        .filter(|prefix| family_of(&prefix.net) == family)
        .map(|prefix| prefix.net.to_string())
        .collect();
    writeln!(text, "\nfilter sp_export_{} {{", peer.name.replace('-', "_"))?;
    if nets.is_empty() {
        return writeln!(text, "  reject;\n}}");
    }
    writeln!(text, "  if source != RTS_STATIC || proto != \"sp_static{family}\" then reject;")?;
    writeln!(text, "  if ! (net ~ [ {} ]) then reject;", nets.join(", "))?;
    if !part.rpki.is_empty() {
        writeln!(text, "  if roa_check(sp_roa{family}, net, {}) = ROA_INVALID then reject;", peer.local_as)?;
    }
    let site = Community::Large(peer.local_as, SITE_FUNCTION, part.site_number());
    writeln!(text, "  {}", add(site))?;
    for community in &peer.communities {
        writeln!(text, "  {}", add(*community))?;
    }
    if peer.is_no_export {
        writeln!(text, "  {}", add(Community::NO_EXPORT))?;
    }
    let prepend = |text: &mut String, times: u8, indent: &str| -> fmt::Result {
        (0..times).try_for_each(|_| writeln!(text, "{indent}bgp_path.prepend({});", peer.local_as))
    };
    prepend(text, peer.prepend, "  ")?;
    writeln!(text, "  if defined(sp_low) then {{")?;
    writeln!(text, "    {}", add(Community::GRACEFUL_SHUTDOWN))?;
    for community in &peer.drain_communities {
        writeln!(text, "    {}", add(*community))?;
    }
    prepend(text, EXTRA_PREPEND, "    ")?;
    writeln!(text, "  }}\n  accept;\n}}")
}

fn write_peer(text: &mut String, peer: &Peer, version: Version) -> fmt::Result {
    let family = if peer.address.is_ipv4() { 4 } else { 6 };
    let is_internal = peer.local_as == peer.remote_as;
    writeln!(text, "\nprotocol bgp {} {{", protocol_of(&peer.name))?;
    writeln!(text, "  local as {};\n  neighbor {} as {};", peer.local_as, peer.address, peer.remote_as)?;
    if let Some(password) = &peer.password {
        writeln!(text, "  password \"{password}\";")?;
    }
    if let Some(role) = peer.role.filter(|_| !is_internal && version.has(Feature::Roles)) {
        writeln!(text, "  local role {};", own_role(role))?;
    }
    if peer.hops > 1 {
        writeln!(text, "  multihop {};", peer.hops)?;
    } else {
        writeln!(text, "  direct;\n  ttl security on;")?;
    }
    if let Some(bfd) = peer.bfd {
        writeln!(text, "  bfd {{ interval {} ms; multiplier {}; }};", bfd.interval_ms, bfd.multiplier)?;
    }
    writeln!(text, "  hold time {HOLD_SECONDS};\n  connect delay time 1;\n  connect retry time 5;")?;
    if version.has(Feature::SendHoldTimer) {
        writeln!(text, "  send hold time {};", 2 * HOLD_SECONDS)?;
    }
    writeln!(text, "  error wait time 1, 2;\n  allow local as {MAX_OWN_IN_PATH};")?;
    writeln!(text, "  graceful restart on;\n  graceful restart time {RESTART_SECONDS};")?;
    writeln!(text, "  ipv{family} {{")?;
    writeln!(text, "    table sp_anycast{family};\n    import filter sp_import{family};")?;
    writeln!(text, "    export filter sp_export_{};", peer.name.replace('-', "_"))?;
    // The limit counts what is kept. So what is refused is kept too, where nobody reads it.
    writeln!(text, "    import keep filtered on;")?;
    writeln!(text, "    receive limit {} action disable;", peer.max_prefixes)?;
    writeln!(text, "    export limit {MAX_PREFIXES} action block;")?;
    // Without it BIRD does not look at routes again when RPKI changes. To switch it later would end the session.
    writeln!(text, "    export table on;")?;
    if is_internal {
        writeln!(text, "    next hop self;")?;
    }
    writeln!(text, "  }};\n}}")
}

/// What this installation is to a neighbour that is this to it.
fn own_role(role: PeerRole) -> &'static str {
    match role {
        PeerRole::Provider => "customer",
        PeerRole::Peer => "peer",
        PeerRole::RouteServer => "rs_client",
        PeerRole::Customer => "provider",
    }
}

fn missing(part: &EdgePart, version: Version) -> Vec<String> {
    let mut missing = Vec::new();
    if !version.has(Feature::Roles) && part.peers.iter().any(|peer| peer.role.is_some()) {
        missing.push(format!(
            "BIRD {version} has no roles (RFC 9234): leaks through neighbours are not refused by them; 2.0.11 has them"
        ));
    }
    if let Some(peer) = part.peers.iter().find(|peer| peer.role.is_some() && peer.local_as == peer.remote_as) {
        missing.push(format!("the session with {} is within one AS, where roles (RFC 9234) do not exist", peer.name));
    }
    if !version.has(Feature::SendHoldTimer) {
        missing.push(format!("BIRD {version} has no send hold timer (RFC 9687): a session with a neighbour that takes nothing any more stays; 2.15 has it"));
    }
    if !version.has(Feature::Aspa) {
        missing.push(format!("BIRD {version} has no ASPA: paths that come back are not checked by it; 2.16 has it"));
    }
    if !version.has(Feature::TcpAo) {
        missing.push(format!("BIRD {version} has no TCP-AO (RFC 5925): MD5 alone authenticates sessions; 2.17 has it"));
    }
    for family in [4, 6] {
        let nets = part.prefixes.iter().filter(|prefix| family_of(&prefix.net) == family).count();
        let has_peer = part.peers.iter().any(|peer| peer.address.is_ipv4() == (family == 4));
        if nets > 0 && !has_peer {
            missing.push(format!("the edge has no neighbour of IPv{family}, so nobody hears its IPv{family} prefixes"));
        }
    }
    missing
}

#[cfg(test)]
#[path = "configuration_tests.rs"]
mod tests;
