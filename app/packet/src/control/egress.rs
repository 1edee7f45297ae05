//! The egress addresses of a balancer, made of what control says: packets of origins go to the edge that has the slice.

use std::net::IpAddr;

use sallyport_api::{Balancer, EgressSlice};
use sallyport_packet_model::balance::{BalanceConfig, EgressConfig, MachineConfig, SiteConfig, SliceConfig};

/// Adds the balancers of other sites, and the egress addresses with their slices. What the file says counts first. An
/// address that cannot be steered is left out: the other ones need the configuration.
pub(super) fn add_egress(config: &mut BalanceConfig, site: &str, slices: &[EgressSlice], others: &[Balancer]) {
    for other in others.iter().filter(|other| other.site != site) {
        for (at, balancer) in other.balancers.iter().enumerate() {
            // Each machine of the other site may send packets here. Packets for its addresses go to the first one.
            let name = if at == 0 { other.site.clone() } else { format!("{}.{}", other.site, at + 1) };
            if is_reachable(config, *balancer)
                && name_at(config, *balancer).is_none()
                && config.sites.iter().all(|site| site.name != name)
            {
                config.sites.push(SiteConfig { name, balancer: *balancer });
            }
        }
    }
    let own: Vec<IpAddr> = config.egress.iter().map(|egress| egress.address).collect();
    for slice in slices.iter().filter(|slice| !own.contains(&slice.address)) {
        add_slice(config, site, slice);
    }
}

fn add_slice(config: &mut BalanceConfig, site: &str, slice: &EgressSlice) {
    let address = slice.address;
    let is_virtual = config.services.iter().any(|service| service.address == address);
    if is_virtual || name_at(config, address).is_some() {
        return;
    }
    let elsewhere = slice.address_site.as_ref().filter(|other| *other != site);
    let elsewhere = elsewhere.filter(|other| config.sites.iter().any(|site| site.name == **other)).cloned();
    let machine = if elsewhere.is_some() { None } else { machine_of(config, slice) };
    if elsewhere.is_none() && machine.is_none() {
        return;
    }
    let at = config.egress.iter().position(|egress| egress.address == address).unwrap_or_else(|| {
        config.egress.push(EgressConfig { address, site: elsewhere, slices: Vec::new() });
        config.egress.len() - 1
    });
    let number = slice.slice;
    let slices = &mut config.egress[at].slices;
    if let Some(machine) = machine.filter(|_| slices.iter().all(|known| known.number != number)) {
        slices.push(SliceConfig { number, machine });
    }
}

/// The name of the machine that has a slice: an edge of the site, or an edge that becomes a machine here. `None` while
/// no address of it is known.
fn machine_of(config: &mut BalanceConfig, slice: &EgressSlice) -> Option<String> {
    let edges = config.edges.iter().map(|edge| &edge.name);
    let mut known = edges.chain(config.machines.iter().map(|machine| &machine.name));
    if known.any(|name| *name == slice.edge) {
        return Some(slice.edge.clone());
    }
    let address = *slice.edge_addresses.iter().find(|address| is_reachable(config, **address))?;
    if let Some(name) = name_at(config, address) {
        return Some(name.to_owned());
    }
    config.machines.push(MachineConfig { name: slice.edge.clone(), address });
    Some(slice.edge.clone())
}

/// Whether this machine has an address of that family to send from.
fn is_reachable(config: &BalanceConfig, address: IpAddr) -> bool {
    config.source.iter().any(|source| source.is_ipv4() == address.is_ipv4())
}

/// The name of what has an address.
fn name_at(config: &BalanceConfig, wanted: IpAddr) -> Option<&str> {
    let edges = config.edges.iter().map(|edge| (&edge.name, edge.address));
    let machines = config.machines.iter().map(|machine| (&machine.name, machine.address));
    let sites = config.sites.iter().map(|site| (&site.name, site.balancer));
    edges.chain(machines).chain(sites).find(|(_, address)| *address == wanted).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sallyport_packet_model::balance::{Egress, Numbers};
    use serde_json::json;

    use super::*;
    use crate::control::plan::{plan, tests::balancer};

    const SHARED: &str = "198.51.100.7";

    fn slice(address: &str, number: u8, edge: &str, address_site: Option<&str>) -> EgressSlice {
        let first = u16::from(number) * 2_048;
        let value = json!({
            "id": format!("{address}-{number}"), "address": address, "slice": number, "first_port": first,
            "last_port": first + 2_047, "state": "lapsed", "edge": edge, "edge_addresses": ["192.0.2.77"],
            "edge_id": "00000000-0000-4000-8000-000000000009", "address_site": address_site, "term": 1,
        });
        serde_json::from_value(value).unwrap()
    }

    fn other(site: &str, balancers: &[&str]) -> Balancer {
        let balancers = balancers.iter().map(|address| address.parse().unwrap()).collect();
        Balancer { site: site.to_owned(), balancers, ..balancer() }
    }

    fn of(slices: &[EgressSlice], others: &[Balancer]) -> BalanceConfig {
        let own: BTreeSet<IpAddr> = ["192.0.2.6".parse().unwrap()].into();
        let base = BalanceConfig { dev: vec!["eth0".to_owned()], ..BalanceConfig::default() };
        let mut config = plan(&base, &balancer(), &own, |_| true);
        add_egress(&mut config, "eu", slices, others);
        config.compile(&mut Numbers::default()).unwrap();
        config
    }

    fn slices(config: &BalanceConfig) -> Vec<(IpAddr, u8, &str)> {
        let all =
            config.egress.iter().flat_map(|egress| egress.slices.iter().map(move |slice| (egress.address, slice)));
        all.map(|(address, slice)| (address, slice.number, slice.machine.as_str())).collect()
    }

    #[test]
    fn a_slice_goes_to_its_edge_in_every_state() {
        let shared: IpAddr = SHARED.parse().unwrap();
        let config = of(&[slice(SHARED, 1, "eu-1", Some("eu")), slice(SHARED, 2, "eu-2", None)], &[]);
        assert_eq!(slices(&config), [(shared, 1, "eu-1"), (shared, 2, "eu-2")]);
        assert!(config.machines.is_empty());
        // An edge of another site is a machine here.
        let config = of(&[slice(SHARED, 3, "us-1", Some("eu")), slice(SHARED, 4, "us-1", Some("eu"))], &[]);
        assert_eq!(slices(&config), [(shared, 3, "us-1"), (shared, 4, "us-1")]);
        assert_eq!(config.machines.len(), 1);
        let tables = config.compile(&mut Numbers::default()).unwrap();
        assert!(matches!(tables.egress[&shared], Egress::Slices(_)));
    }

    #[test]
    fn an_address_of_another_site_goes_to_its_balancer() {
        let us = other("us", &["192.0.2.91", "192.0.2.92"]);
        let config =
            of(&[slice(SHARED, 1, "us-1", Some("us")), slice(SHARED, 2, "eu-1", Some("us"))], &[us, balancer()]);
        let names: Vec<_> = config.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["us", "us.2"], "both machines of the site may send, and the own site is none");
        assert_eq!((config.egress.len(), config.egress[0].site.as_deref()), (1, Some("us")));
        assert!(config.egress[0].slices.is_empty());
        // A site without a balancer is no detour: the slice goes to the edge.
        let config = of(&[slice(SHARED, 2, "eu-1", Some("us"))], &[]);
        assert_eq!(slices(&config), [(SHARED.parse().unwrap(), 2, "eu-1")]);
    }

    #[test]
    fn what_cannot_be_steered_is_left_out_and_nothing_else() {
        let good = slice(SHARED, 1, "eu-1", None);
        let is_virtual = slice("198.51.100.1", 1, "eu-1", None);
        let is_edge = slice("192.0.2.11", 1, "eu-1", None);
        let nowhere = EgressSlice { edge_addresses: Vec::new(), ..slice("198.51.100.8", 1, "us-9", None) };
        let family = EgressSlice {
            edge_addresses: vec!["2001:db8::9".parse().unwrap()],
            ..slice("198.51.100.9", 1, "us-9", None)
        };
        let twice = slice(SHARED, 1, "eu-2", None);
        let config = of(&[good, is_virtual, is_edge, nowhere, family, twice], &[other("us", &["2001:db8::5"])]);
        assert_eq!(slices(&config), [(SHARED.parse().unwrap(), 1, "eu-1")]);
        assert!(config.sites.is_empty() && config.machines.is_empty());
    }

    #[test]
    fn the_file_counts_first() {
        let own: BTreeSet<IpAddr> = ["192.0.2.6".parse().unwrap()].into();
        let mut config = plan(&BalanceConfig::default(), &balancer(), &own, |_| true);
        let address = SHARED.parse().unwrap();
        config.egress.push(EgressConfig { address, site: None, slices: Vec::new() });
        config.sites.push(SiteConfig { name: "us".to_owned(), balancer: "192.0.2.80".parse().unwrap() });
        add_egress(&mut config, "eu", &[slice(SHARED, 1, "eu-1", None)], &[other("us", &["192.0.2.91"])]);
        assert!(slices(&config).is_empty());
        assert_eq!(config.sites.len(), 1);
    }
}
