//! Anycast: prefixes that edges announce, their neighbours, and orders about edges.

use std::net::IpAddr;

use ipnet::IpNet;
use sallyport_anycast::model::{AnycastPrefix, BfdTimers, Community, Order, OrderKind, Peer, PeerRole, Place};
use sallyport_api::{
    AnycastBfd, AnycastOrder, AnycastOrderKind, AnycastPeer, AnycastPrefix as ApiPrefix, AnycastSession,
    CreateAnycastOrder, CreateAnycastPeer, CreateAnycastPrefix,
};
use sallyport_bus::OwnedAnycast;
use sallyport_identity::Purpose;
use sallyport_model::{AccountId, AnycastItemId, RegionName};
use sallyport_store::{AnycastKind, Creation, IdempotencyKey, StoreError, StoredAnycast, StoredAnycastItem};

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// The most communities of a prefix.
const MAX_COMMUNITIES: usize = 32;
/// The most regions of a prefix.
const MAX_REGIONS: usize = 64;
/// The most regions that a prefix may be kept in.
const MAX_MIN_SITES: u16 = 1_000;
/// The most routes that a neighbour may send, unless the request says so.
const DEFAULT_MAX_PREFIXES: u32 = 1_000;
/// The most characters of bad input that a refusal repeats.
const MAX_SHOWN_CHARS: usize = 64;

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

fn communities(field: &str, texts: Option<Vec<String>>) -> Result<Vec<Community>, ApiError> {
    let texts = texts.unwrap_or_default();
    if texts.len() > MAX_COMMUNITIES {
        return Err(ApiError::field(field, format!("there are at most {MAX_COMMUNITIES} communities")));
    }
    texts.iter().map(|text| text.parse().map_err(|error| ApiError::field(field, error))).collect()
}

fn regions(texts: Option<Vec<String>>) -> Result<Vec<RegionName>, ApiError> {
    let texts = texts.unwrap_or_default();
    if texts.len() > MAX_REGIONS {
        return Err(ApiError::field("regions", format!("a prefix has at most {MAX_REGIONS} regions")));
    }
    let mut named = Vec::with_capacity(texts.len());
    for text in texts {
        let region: RegionName = text.parse().map_err(|error| ApiError::field("regions", error))?;
        if !named.contains(&region) {
            named.push(region);
        }
    }
    Ok(named)
}

fn place(text: &str) -> Result<Place, ApiError> {
    text.parse().map_err(|error: String| ApiError::field("place", error.chars().take(200).collect::<String>()))
}

/// The prefix of a request. A text without a length is one address.
fn net(text: &str) -> Result<IpNet, ApiError> {
    let text = text.trim();
    let whole = text.parse::<IpAddr>().map(IpNet::from).ok();
    text.parse().ok().or(whole).ok_or_else(|| {
        let detail = format!("{:?} is no prefix: use one such as 198.51.100.0/24 or 2001:db8::/48", shown(text));
        ApiError::field("prefix", detail)
    })
}

/// The first host of a prefix; its only address, where it has one.
fn first_host(net: IpNet) -> Option<IpAddr> {
    // The first address of an IPv6 network is that of its routers (RFC 4291 section 2.6.1).
    match net {
        IpNet::V4(net) => net.hosts().next().map(IpAddr::V4),
        IpNet::V6(net) if net.prefix_len() < 127 => net.hosts().nth(1).map(IpAddr::V6),
        IpNet::V6(net) => net.hosts().next().map(IpAddr::V6),
    }
}

impl App {
    /// What edges get.
    pub(crate) async fn anycast_config(&self) -> Result<OwnedAnycast, StoreError> {
        Ok(OwnedAnycast { owner: self.store.first_account().await?, config: self.store.anycast().await?.config() })
    }

    /// Publishes the present state to edges.
    pub(crate) async fn publish_anycast(&self) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        self.reload_anycast().await
    }

    /// Reads everything about anycast from the store. The caller holds the publishing lock, or is the only one yet.
    pub(crate) async fn reload_anycast(&self) -> Result<(), ApiError> {
        self.anycast.put(self.anycast_config().await?);
        Ok(())
    }

    async fn create_anycast<T: AnycastKind>(
        &self,
        account: AccountId,
        item: T,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<StoredAnycastItem<T>, ApiError> {
        audit::set_target(item.name());
        self.limits.create(account, self.clock.now().monotonic)?;
        let new = StoredAnycastItem {
            id: AnycastItemId::from_random(random::bytes()?),
            item,
            created_at: self.clock.now().unix_seconds,
        };
        match self.store.create_anycast_item(account, &new, keyed).await? {
            Creation::Made(()) => {
                self.publish_anycast().await?;
                tracing::info!(kind = T::KIND, name = new.item.name(), "anycast has another item");
                Ok(new)
            }
            // What an earlier request with this key has made.
            Creation::Repeated(stored) => {
                let id = AnycastItemId::from_bytes(stored.resource);
                Ok(StoredAnycastItem { id, ..new })
            }
        }
    }

    /// Adds a prefix; edges of this machine know it when this returns.
    pub(crate) async fn create_anycast_prefix(
        &self,
        account: AccountId,
        create: CreateAnycastPrefix,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<ApiPrefix, ApiError> {
        let net = net(&create.prefix)?;
        let addresses = match create.addresses {
            Some(texts) => texts
                .iter()
                .map(|text| {
                    text.parse().map_err(|_| ApiError::field("addresses", format!("{:?} is no address", shown(text))))
                })
                .collect::<Result<Vec<IpAddr>, _>>()?,
            None => first_host(net).into_iter().collect(),
        };
        let mut unique = addresses.clone();
        unique.sort_unstable();
        unique.dedup();
        if unique.len() != addresses.len() {
            return Err(ApiError::field("addresses", "an address is named twice"));
        }
        let min_sites = create.min_sites.unwrap_or(1);
        if min_sites > MAX_MIN_SITES {
            return Err(ApiError::field("min_sites", format!("at most {MAX_MIN_SITES} regions keep a prefix")));
        }
        let prefix = AnycastPrefix {
            net,
            addresses,
            regions: regions(create.regions)?,
            communities: communities("communities", create.communities)?,
            min_sites,
        };
        if self.config.anycast_allow.0.is_empty() {
            let detail = format!(
                "this server allows no prefixes: its operator starts it, and the edges, with --anycast-allow {net}"
            );
            return Err(ApiError::field("prefix", detail));
        }
        prefix.check(&self.config.anycast_allow).map_err(|error| ApiError::field("prefix", error))?;
        Ok(self.anycast_prefix_to_api(self.create_anycast(account, prefix, keyed).await?))
    }

    /// Adds a neighbour; edges of this machine know it when this returns.
    pub(crate) async fn create_anycast_peer(
        &self,
        account: AccountId,
        create: CreateAnycastPeer,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<AnycastPeer, ApiError> {
        let address = create.address.trim();
        let address: IpAddr = address
            .parse()
            .map_err(|_| ApiError::field("address", format!("{:?} is no address of a router", shown(address))))?;
        let role = match create.role.as_deref() {
            None => Some(PeerRole::Provider),
            Some("none") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                let detail =
                    format!("{:?} is no role: use provider, peer, route-server, customer or none", shown(text));
                ApiError::field("role", detail)
            })?),
        };
        let mut peer = Peer {
            name: create.name,
            place: create.place.as_deref().map_or(Ok(Place::Everywhere), place)?,
            address,
            remote_as: create.remote_as,
            local_as: create.local_as,
            role,
            password: create.password.as_ref().map(|password| password.expose().to_owned()),
            hops: create.hops.unwrap_or(1),
            bfd: create.bfd.map(|bfd| BfdTimers { interval_ms: bfd.interval_ms, multiplier: bfd.multiplier }),
            max_prefixes: create.max_prefixes.unwrap_or(DEFAULT_MAX_PREFIXES),
            communities: communities("communities", create.communities)?,
            drain_communities: communities("drain_communities", create.drain_communities)?,
            prepend: create.prepend.unwrap_or_default(),
            is_no_export: create.no_export,
        };
        peer.check().map_err(|error| ApiError::field(field_of(&error), error))?;
        if let Some(password) = &mut peer.password {
            let sealed = self.sealer.seal(Purpose::RouterPassword, password, random::bytes()?);
            *password = sealed.ok_or_else(|| ApiError::internal("a password could not be sealed"))?;
        }
        Ok(self.anycast_peer_to_api(self.create_anycast(account, peer, keyed).await?))
    }

    /// Gives an order, in place of the former one for the same edges.
    pub(crate) async fn create_anycast_order(
        &self,
        account: AccountId,
        create: CreateAnycastOrder,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<AnycastOrder, ApiError> {
        let kind = match create.kind {
            AnycastOrderKind::Maintain => OrderKind::Maintain,
            AnycastOrderKind::Drain => OrderKind::Drain,
        };
        let since_ms = self.clock.now().unix_seconds.saturating_mul(1_000);
        let order = Order { place: place(&create.place)?, kind, since_ms };
        Ok(self.anycast_order_to_api(self.create_anycast(account, order, keyed).await?))
    }

    /// Removes an item; edges of this machine know that when this returns.
    pub(crate) async fn delete_anycast<T: AnycastKind>(&self, id: &str, what: &str) -> Result<(), ApiError> {
        let all = self.store.anycast().await?;
        // People know names better than ids.
        let named = match T::KIND {
            "prefix" => all.prefixes.iter().find(|one| one.item.name() == id).map(|one| one.id),
            "peer" => all.peers.iter().find(|one| one.item.name() == id).map(|one| one.id),
            _ => all.orders.iter().find(|one| one.item.name() == id).map(|one| one.id),
        };
        let id = named.or_else(|| id.parse().ok()).ok_or_else(|| ApiError::not_found(what))?;
        let gone = self.store.delete_anycast_item::<T>(id).await?.ok_or_else(|| ApiError::not_found(what))?;
        audit::set_target(gone.item.name());
        self.publish_anycast().await?;
        tracing::info!(kind = T::KIND, name = gone.item.name(), "anycast has an item less");
        Ok(())
    }

    /// The sites, and their sessions with routers. The edge of one machine is a site.
    pub(crate) async fn anycast_sites(
        &self,
        stored: &StoredAnycast,
    ) -> Result<(Vec<String>, Vec<AnycastSession>), ApiError> {
        let edges = self.store.edges().await?;
        let mut places: Vec<_> = edges.into_iter().map(|edge| (edge.name, edge.region)).collect();
        if self.edges.get().is_none() {
            let (Ok(edge), Ok(region)) = (THIS_MACHINE.parse(), THIS_MACHINE.parse()) else {
                return Ok((Vec::new(), Vec::new()));
            };
            places = vec![(edge, region)];
        }
        let mut sessions = Vec::new();
        for (edge, region) in &places {
            for StoredAnycastItem { item: peer, .. } in &stored.peers {
                let session = AnycastSession {
                    site: region.to_string(),
                    peer: peer.name.clone(),
                    remote_as: peer.remote_as,
                    local_as: peer.local_as,
                    role: peer.role.map(|role| role.to_string()),
                    no_export: peer.is_no_export || peer.communities.contains(&Community::NO_EXPORT),
                };
                if peer.place.has(edge, Some(region)) && !sessions.contains(&session) {
                    sessions.push(session);
                }
            }
        }
        let mut sites: Vec<String> = places.into_iter().map(|(_, region)| region.to_string()).collect();
        sites.sort_unstable();
        sites.dedup();
        Ok((sites, sessions))
    }

    /// Notes on a place in which no edge is now.
    fn notes_on_place(&self, place: &Place) -> Vec<String> {
        let is_one_machine = self.edges.get().is_none();
        let edges = self.fleet.edges();
        let note = match place {
            Place::Everywhere => None,
            Place::Region(_) if is_one_machine => {
                Some("this installation is one machine, which is in no region: use everywhere".to_owned())
            }
            Place::Edge(edge) if is_one_machine => (edge.as_str() != THIS_MACHINE)
                .then(|| format!("this installation is one machine, whose edge is named {THIS_MACHINE}")),
            _ if self.fleet.stale_since().is_some() => None,
            Place::Region(region) => {
                let is_there = edges.iter().any(|edge| edge.card.region == *region);
                (!is_there).then(|| format!("no edge is in the region {region} now"))
            }
            Place::Edge(name) => {
                let is_there = edges.iter().any(|edge| edge.card.name == *name);
                (!is_there).then(|| format!("the edge {name} is not there now"))
            }
        };
        note.into_iter().collect()
    }

    /// A prefix in the form of the API.
    pub(crate) fn anycast_prefix_to_api(&self, stored: StoredAnycastItem<AnycastPrefix>) -> ApiPrefix {
        let prefix = stored.item;
        let mut notes: Vec<_> =
            prefix.regions.iter().flat_map(|region| self.notes_on_place(&Place::Region(region.clone()))).collect();
        if let Err(error) = prefix.check(&self.config.anycast_allow) {
            notes.push(error.to_string());
        }
        ApiPrefix {
            id: stored.id.uuid(),
            prefix: prefix.net.to_string(),
            addresses: prefix.addresses,
            regions: prefix.regions.iter().map(ToString::to_string).collect(),
            communities: prefix.communities.iter().map(ToString::to_string).collect(),
            min_sites: prefix.min_sites,
            created_at: date(stored.created_at),
            notes,
        }
    }

    /// A neighbour in the form of the API, without its password.
    pub(crate) fn anycast_peer_to_api(&self, stored: StoredAnycastItem<Peer>) -> AnycastPeer {
        let peer = stored.item;
        AnycastPeer {
            id: stored.id.uuid(),
            notes: self.notes_on_place(&peer.place),
            name: peer.name,
            place: peer.place.to_string(),
            address: peer.address,
            remote_as: peer.remote_as,
            local_as: peer.local_as,
            role: peer.role.map(|role| role.to_string()),
            has_password: peer.password.is_some(),
            hops: peer.hops,
            bfd: peer.bfd.map(|bfd| AnycastBfd { interval_ms: bfd.interval_ms, multiplier: bfd.multiplier }),
            max_prefixes: peer.max_prefixes,
            communities: peer.communities.iter().map(ToString::to_string).collect(),
            drain_communities: peer.drain_communities.iter().map(ToString::to_string).collect(),
            prepend: peer.prepend,
            no_export: peer.is_no_export,
            created_at: date(stored.created_at),
        }
    }

    /// An order in the form of the API.
    pub(crate) fn anycast_order_to_api(&self, stored: StoredAnycastItem<Order>) -> AnycastOrder {
        AnycastOrder {
            id: stored.id.uuid(),
            place: stored.item.place.to_string(),
            kind: match stored.item.kind {
                OrderKind::Maintain => AnycastOrderKind::Maintain,
                OrderKind::Drain => AnycastOrderKind::Drain,
            },
            created_at: date(stored.created_at),
            notes: self.notes_on_place(&stored.item.place),
        }
    }
}

/// The name of the edge of an installation on one machine.
const THIS_MACHINE: &str = "edge";

/// The field of the API that an error is about.
fn field_of(error: &sallyport_anycast::model::PeerError) -> &'static str {
    use sallyport_anycast::model::PeerError;
    match error {
        PeerError::Name(_) => "name",
        PeerError::As(_) => "remote_as",
        PeerError::Address(_) => "address",
        PeerError::Password => "password",
        PeerError::Hops => "hops",
        PeerError::Bfd | PeerError::BfdHops => "bfd",
        PeerError::MaxPrefixes => "max_prefixes",
        PeerError::Prepend => "prepend",
        PeerError::Communities => "communities",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_is_one_that_a_machine_may_have() {
        for (prefix, expected) in [
            ("198.51.100.0/24", "198.51.100.1"),
            ("198.51.100.7/32", "198.51.100.7"),
            ("198.51.100.6/31", "198.51.100.6"),
            ("2001:db8::/48", "2001:db8::1"),
            ("2001:db8::7/128", "2001:db8::7"),
        ] {
            let net: IpNet = prefix.parse().unwrap();
            assert_eq!(first_host(net), Some(expected.parse().unwrap()), "{prefix}");
            let made = AnycastPrefix {
                net,
                addresses: first_host(net).into_iter().collect(),
                regions: vec![],
                communities: vec![],
                min_sites: 1,
            };
            made.check(&sallyport_anycast::model::AllowList(vec![net])).unwrap();
        }
    }
}
