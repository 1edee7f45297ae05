//! Balancers of sites: what operators set, and what machines that balance get.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use sallyport_api::{
    BalancedEdge, BalancedEdgeState, BalancedProtocol, BalancedService, Balancer, BalancerEncapsulation, SetBalancer,
};
use sallyport_bus::{EdgeState, FleetEdge};
use sallyport_model::{EdgeName, Encapsulation, RegionName, SiteBalancer, SocketType, is_private};
use sallyport_store::{StoreError, StoredBalancer, StoredEdge};

use crate::{audit, clock::date, problem::ApiError, state::App};

/// The most characters of bad input that a refusal repeats.
const MAX_SHOWN_CHARS: usize = 64;
/// The most ranges of ports of a site.
const MAX_SERVICES: usize = 1_024;

/// Reads addresses.
fn addresses(field: &str, texts: &[String]) -> Result<Vec<IpAddr>, ApiError> {
    let address = |text: &String| {
        text.trim().parse().map_err(|_| {
            let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            ApiError::field(field, format!("{shown:?} is no address: use one such as 198.51.100.1 or 2001:db8::1"))
        })
    };
    // The check of the whole has a smaller bound, with a sentence of its own.
    texts.iter().take(MAX_SERVICES).map(address).collect()
}

fn to_api(encapsulation: Encapsulation) -> BalancerEncapsulation {
    match encapsulation {
        Encapsulation::Ipip => BalancerEncapsulation::Ipip,
        Encapsulation::Gue => BalancerEncapsulation::Gue,
    }
}

/// Ports as ranges.
fn ranges(protocol: BalancedProtocol, quic: bool, ports: &BTreeSet<u16>) -> Vec<BalancedService> {
    let mut found: Vec<BalancedService> = Vec::new();
    for port in ports {
        match found.last_mut() {
            Some(last) if last.last_port.checked_add(1) == Some(*port) => last.last_port = *port,
            _ => found.push(BalancedService { protocol, first_port: *port, last_port: *port, quic }),
        }
    }
    found
}

impl App {
    /// What edges get.
    pub(crate) async fn site_balancers(&self) -> Result<Vec<SiteBalancer>, StoreError> {
        Ok(self.store.balancers().await?.into_iter().map(|one| one.balancer).collect())
    }

    /// Reads the balancers of sites from the store. The caller holds the publishing lock, or is the only one yet.
    pub(crate) async fn reload_balancers(&self) -> Result<(), StoreError> {
        self.balancers.put(self.site_balancers().await?);
        Ok(())
    }

    /// The balancers of all sites.
    pub(crate) async fn list_balancers(&self) -> Result<Vec<Balancer>, ApiError> {
        let edges = self.store.edges().await?;
        Ok(self.store.balancers().await?.into_iter().map(|stored| self.balancer_to_api(stored, &edges)).collect())
    }

    /// The balancer of a site.
    pub(crate) async fn balancer(&self, site: &str) -> Result<Balancer, ApiError> {
        let stored = self.store.balancers().await?.into_iter().find(|one| one.balancer.site.as_str() == site);
        let stored = stored.ok_or_else(|| ApiError::not_found("balancer"))?;
        Ok(self.balancer_to_api(stored, &self.store.edges().await?))
    }

    /// Sets the balancer of a site; edges of this machine know it when this returns.
    pub(crate) async fn set_balancer(&self, site: &str, set: SetBalancer) -> Result<Balancer, ApiError> {
        let site: RegionName = site.parse().map_err(|error| ApiError::field("site", error))?;
        audit::set_target(&site);
        let edges = self.store.edges().await?;
        if edges.is_empty() {
            self.edges_config()?;
        }
        if !edges.iter().any(|edge| edge.region == site) {
            let detail = format!("no edge has joined in the region {site}: `sallyport edge ls` lists them");
            return Err(ApiError::field("site", detail));
        }
        let _turn = self.publishing.lock().await;
        let former = self.store.balancers().await?.into_iter().find(|one| one.balancer.site == site);
        let former = former.map(|former| former.balancer);
        let weights = match set.weights {
            Some(weights) => shares(weights, &site, &edges)?,
            None => former.as_ref().map(|former| former.weights.clone()).unwrap_or_default(),
        };
        let encapsulation = match set.encapsulation {
            Some(BalancerEncapsulation::Ipip) => Encapsulation::Ipip,
            Some(BalancerEncapsulation::Gue) => Encapsulation::Gue,
            None => former.map(|former| former.encapsulation).unwrap_or_default(),
        };
        let balancer = SiteBalancer {
            site,
            addresses: addresses("addresses", &set.addresses)?,
            encapsulation,
            balancers: addresses("balancers", &set.balancers)?,
            weights,
        };
        balancer.check().map_err(|error| ApiError::field(error.field(), &error))?;
        // Anycast brings packets to one address to several sites.
        let prefixes = self.anycast.get();
        let is_free = |address: &&IpAddr| prefixes.prefixes.iter().any(|prefix| prefix.net.contains(*address));
        let free: Vec<IpAddr> = balancer.addresses.iter().filter(is_free).copied().collect();
        let created_at = self.store.set_balancer(&balancer, &free, self.clock.now().unix_seconds).await?;
        self.reload_balancers().await?;
        tracing::info!(site = %balancer.site, "the balancer of a site was set");
        Ok(self.balancer_to_api(StoredBalancer { balancer, created_at }, &edges))
    }

    /// Removes the balancer of a site; edges of this machine know that when this returns.
    pub(crate) async fn delete_balancer(&self, site: &str) -> Result<(), ApiError> {
        let missing = || ApiError::not_found("balancer");
        let site: RegionName = site.parse().map_err(|_| missing())?;
        audit::set_target(&site);
        let _turn = self.publishing.lock().await;
        if !self.store.delete_balancer(&site).await? {
            return Err(missing());
        }
        self.reload_balancers().await?;
        tracing::info!(%site, "the balancer of a site was removed");
        Ok(())
    }

    /// The ports that edges of a site serve: their own, and those of sockets.
    fn balanced_services(&self, live: &[FleetEdge]) -> Vec<BalancedService> {
        let (mut tcp, mut udp, mut quic) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for card in live.iter().map(|edge| &edge.card) {
            if let Some(balanced) = &card.balanced {
                tcp.extend(balanced.tcp.iter().copied());
                quic.extend(balanced.udp.iter().copied().chain(card.http3_port));
            }
        }
        for route in self.routes.all() {
            match (route.socket_type, route.port) {
                (SocketType::Udp, Some(port)) => udp.insert(port),
                (_, Some(port)) => tcp.insert(port),
                (_, None) => false,
            };
        }
        udp.retain(|port| !quic.contains(port));
        let mut all = ranges(BalancedProtocol::Tcp, false, &tcp);
        all.extend(ranges(BalancedProtocol::Udp, true, &quic));
        all.extend(ranges(BalancedProtocol::Udp, false, &udp));
        all.truncate(MAX_SERVICES);
        all
    }

    /// A balancer with what stands behind it now.
    fn balancer_to_api(&self, stored: StoredBalancer, edges: &[StoredEdge]) -> Balancer {
        let StoredBalancer { balancer, created_at } = stored;
        let mut live = self.fleet.edges();
        live.retain(|edge| edge.card.region == balancer.site);
        let is_stale = self.fleet.stale_since().is_some();
        let of_site: Vec<_> = edges.iter().filter(|edge| edge.region == balancer.site).collect();
        let behind = of_site.iter().filter_map(|edge| {
            let card = live.iter().map(|live| &live.card).find(|card| card.edge == edge.id);
            // An edge that lives and does not say so is behind no balancer.
            let balanced = match card {
                Some(card) => Some(card.balanced.as_ref()?),
                None => None,
            };
            let state = match card.map(|card| card.state) {
                None => BalancedEdgeState::Down,
                Some(_) if balanced.is_some_and(|balanced| balanced.fault.is_some()) => BalancedEdgeState::Down,
                // The order counts before the edge has heard of it.
                _ if edge.drain_until.is_some() => BalancedEdgeState::Draining,
                Some(EdgeState::Draining) => BalancedEdgeState::Draining,
                Some(EdgeState::Serving) => BalancedEdgeState::Serving,
            };
            Some(BalancedEdge {
                id: edge.id.uuid(),
                name: edge.name.to_string(),
                address: balanced.map(|balanced| balanced.address),
                probe_port: balanced.and_then(|balanced| balanced.tcp.first().copied()),
                server: edge.server,
                why: balanced.and_then(|balanced| balanced.fault.clone()),
                weight: balancer.weight(&edge.name),
                state,
            })
        });
        let behind: Vec<_> = behind.collect();
        let notes = self.notes_on_balancer(&balancer, &behind, is_stale);
        Balancer {
            services: self.balanced_services(&live),
            site: balancer.site.to_string(),
            addresses: balancer.addresses,
            balancers: balancer.balancers,
            encapsulation: to_api(balancer.encapsulation),
            weights: balancer.weights.iter().map(|(edge, weight)| (edge.to_string(), *weight)).collect(),
            edges: behind,
            is_stale,
            created_at: date(created_at),
            notes,
        }
    }

    /// What is missing, or has no effect.
    fn notes_on_balancer(&self, balancer: &SiteBalancer, edges: &[BalancedEdge], is_stale: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if is_stale {
            notes.push("the bus is away: the states of edges are the last that control knew".to_owned());
        }
        let is_there = |edge: &&BalancedEdge| edge.address.is_some();
        if !is_stale && !edges.iter().any(|edge| is_there(&edge)) {
            let site = &balancer.site;
            notes.push(format!("no edge of {site} is behind it: start `sallyport edge` with --behind-balancer"));
        }
        let is_gone = |edge: &&EdgeName| !edges.iter().any(|known| known.name == edge.as_str());
        let gone = balancer.weights.keys().filter(is_gone);
        notes.extend(gone.map(|edge| format!("the weight of {edge} has no effect: it is not behind the balancer")));
        let private = balancer.addresses.iter().filter(|address| is_private(**address));
        notes.extend(private.map(|address| format!("{address} is private: clients on the internet do not reach it")));
        if let Some(first) = edges.iter().find(is_there).and_then(|edge| edge.address)
            && let Some(other) =
                edges.iter().filter_map(|edge| edge.address).find(|one| one.is_ipv4() != first.is_ipv4())
        {
            notes.push(format!("{first} and {other} are of two families: a balancer sends to edges by one"));
        }
        notes
    }
}

/// The shares by edge. Each edge is one of the site.
fn shares(
    weights: BTreeMap<String, u16>,
    site: &RegionName,
    edges: &[StoredEdge],
) -> Result<BTreeMap<EdgeName, u16>, ApiError> {
    let share = |(text, weight): (String, u16)| {
        let edge = edges.iter().find(|edge| edge.name.as_str() == text);
        let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
        match edge {
            None => Err(ApiError::field("weights", format!("there is no edge {shown:?}"))),
            Some(edge) if edge.region != *site => {
                let detail = format!("the edge {} is in {}, and not in {site}", edge.name, edge.region);
                Err(ApiError::field("weights", detail))
            }
            Some(edge) => Ok((edge.name.clone(), weight)),
        }
    };
    weights.into_iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ports_are_one_range() {
        let of = |ports: &[u16]| -> Vec<(u16, u16)> {
            let found = ranges(BalancedProtocol::Tcp, false, &ports.iter().copied().collect());
            found.into_iter().map(|one| (one.first_port, one.last_port)).collect()
        };
        assert_eq!(of(&[443, 80, 21_001, 21_000, 65_535]), [(80, 80), (443, 443), (21_000, 21_001), (65_535, 65_535)]);
        assert_eq!(of(&[]), []);
    }
}
