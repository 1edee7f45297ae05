//! Which region the name server answers whom: dials of regions, and what was measured for the networks of clients.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ipnet::IpNet;
use sallyport_anycast::model::AnycastConfig;
use sallyport_api::{
    AnycastAnswers, AnycastDial, AnycastDials, AnycastResolution, AnycastResolveQuery, RankedRegion, ResolutionReason,
    SetAnycastDials,
};
use sallyport_bus::{EdgeState, FleetEdge};
use sallyport_catchment::{Prefix, SteeringRules, SteeringTable as Measured};
use sallyport_model::{ALL_EDGES, DnsRegion, DnsSettings, DnsSteeringPart, MAX_STEERED_REGIONS, RegionName};
use sallyport_store::StoreError;
use sallyport_zone::{
    data::{Site, Steering},
    query::ClientSubnet,
    steer::{
        Asking, Choice, ChoiceReason, Keep, MeasuredNetwork, PlanInput, RegionTime, SteeringTable, believed_network,
        plan,
    },
};

use crate::{audit, problem::ApiError, state::App};

/// How long others may keep answers, in seconds. Only for what control says about them.
const TTL_SECONDS: u32 = 30;

/// The addresses of prefixes that one region announces, and of those that all announce.
fn anycast_addresses(config: &AnycastConfig) -> (BTreeMap<RegionName, Vec<IpAddr>>, Vec<IpAddr>) {
    let (mut of_regions, mut of_all) = (BTreeMap::<RegionName, Vec<IpAddr>>::new(), Vec::new());
    for prefix in &config.prefixes {
        match prefix.regions.as_slice() {
            [] => of_all.extend(&prefix.addresses),
            [one] => of_regions.entry(one.clone()).or_default().extend(&prefix.addresses),
            _ => {}
        }
    }
    (of_regions, of_all)
}

/// The settings with the anycast addresses, if those are answered.
fn with_addresses(settings: DnsSettings, config: &AnycastConfig) -> (BTreeMap<RegionName, DnsRegion>, Vec<IpAddr>) {
    let mut regions = settings.regions;
    if !settings.has_anycast {
        return (regions, Vec::new());
    }
    let (of_regions, of_all) = anycast_addresses(config);
    for (region, addresses) in of_regions {
        regions.entry(region).or_default().addresses = addresses;
    }
    (regions, of_all)
}

impl App {
    fn is_dns_steered(&self) -> bool {
        self.config.has_name_server && self.config.dns_steering_every.is_some()
    }

    /// What a plan is made from, without what was measured.
    async fn dns_plan_input(&self) -> Result<PlanInput, StoreError> {
        let (settings, global) = with_addresses(self.store.dns_settings().await?, &self.anycast_config().await?.config);
        let regions = self.store.edges().await?.into_iter().map(|edge| edge.region).collect();
        Ok(PlanInput { regions, settings, global, ..PlanInput::default() })
    }

    /// Part 0 of what steers the name server; `None` if nobody is steered.
    pub(crate) async fn dns_head(&self) -> Result<Option<DnsSteeringPart>, StoreError> {
        if !self.is_dns_steered() {
            return Ok(None);
        }
        let input = self.dns_plan_input().await?;
        Ok(plan(&input).into_iter().find(|part| part.part == 0))
    }

    /// The networks of clients with their round trips, as they are in the store now.
    async fn measured_networks(&self) -> Result<Vec<MeasuredNetwork>, StoreError> {
        let rows = self.store.catchment().await?;
        let mut requests: HashMap<Prefix, u64> = HashMap::new();
        for row in &rows {
            let sum = requests.entry(row.prefix).or_default();
            *sum = sum.saturating_add(row.requests);
        }
        let measured = Measured::build(&rows, SteeringRules::default(), self.clock.now().unix_seconds);
        let time = |(region, time): &(RegionName, std::time::Duration)| RegionTime {
            region: region.clone(),
            micros: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
        };
        let network = |(prefix, sites): (Prefix, &[(RegionName, std::time::Duration)])| {
            let network: IpNet = prefix.to_string().parse().ok()?;
            let requests = requests.get(&prefix).copied().unwrap_or(0);
            Some(MeasuredNetwork { network, times: sites.iter().map(time).collect(), requests })
        };
        Ok(measured.iter().filter_map(network).collect())
    }

    /// Makes what steers the name server anew, and publishes what has changed. While the catchment is frozen, only the
    /// settings change.
    pub(crate) async fn renew_dns_steering(&self) -> Result<(), ApiError> {
        if !self.is_dns_steered() {
            self.dns_steering.set(Vec::new());
            return Ok(());
        }
        let mut input = self.dns_plan_input().await?;
        let is_frozen = self.catchment.frozen().is_some();
        if !is_frozen {
            input.networks = self.measured_networks().await?;
        }
        let mut parts = tokio::task::spawn_blocking(move || plan(&input)).await.map_err(ApiError::internal)?;
        if is_frozen {
            let kept = self.dns_steering.all();
            parts.truncate(1);
            parts.extend(kept.iter().filter(|part| part.part > 0).map(|part| (**part).clone()));
        }
        self.dns_steering.set(parts);
        Ok(())
    }

    /// The dials of regions for DNS, with notes.
    pub(crate) async fn anycast_dials(&self) -> Result<AnycastDials, ApiError> {
        let settings = self.store.dns_settings().await?;
        let (networks, _) = self.dns_table().sizes();
        let dials = settings
            .regions
            .iter()
            .map(|(region, set)| (region.to_string(), AnycastDial { dial: set.dial, share: set.share }));
        let answers = if settings.has_anycast { AnycastAnswers::Anycast } else { AnycastAnswers::Edges };
        Ok(AnycastDials {
            dials: dials.collect(),
            answers,
            is_steering: self.is_dns_steered(),
            networks: networks as u64,
            is_frozen: self.catchment.frozen().is_some(),
            notes: self.notes_on_dials(&settings),
        })
    }

    fn notes_on_dials(&self, settings: &DnsSettings) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.config.has_name_server {
            notes.push("no edge answers DNS for this installation: see --name-server of control".to_owned());
        } else if self.edges.get().is_none() {
            let note = "this installation is one machine, which is in no region: dials have no effect";
            notes.push(note.to_owned());
        } else if self.config.dns_steering_every.is_none() {
            notes.push("control runs with --no-dns-steering: dials have no effect".to_owned());
        }
        if self.edges.get().is_some() && self.fleet.stale_since().is_none() {
            let edges = self.fleet.edges();
            let missing =
                settings.regions.keys().filter(|region| !edges.iter().any(|edge| edge.card.region == **region));
            notes
                .extend(missing.map(|region| format!("no edge is in the region {region} now: its dial has no effect")));
        }
        notes
    }

    /// Replaces the dials of regions for DNS.
    pub(crate) async fn set_anycast_dials(&self, set: SetAnycastDials) -> Result<AnycastDials, ApiError> {
        audit::set_target("dns");
        if set.dials.len() > MAX_STEERED_REGIONS {
            return Err(ApiError::field("dials", format!("there are at most {MAX_STEERED_REGIONS} regions")));
        }
        let mut regions = BTreeMap::new();
        for (name, dial) in set.dials {
            let region: RegionName = name.parse().map_err(|error| ApiError::field("dials", error))?;
            if dial.dial > 100 || dial.share > 100 {
                return Err(ApiError::field("dials", format!("a dial and a share of {region} are 0 to 100 percent")));
            }
            regions.insert(region, DnsRegion { dial: dial.dial, share: dial.share, addresses: Vec::new() });
        }
        let known: BTreeSet<RegionName> = self.store.edges().await?.into_iter().map(|edge| edge.region).collect();
        let is_closed = |region: &RegionName| regions.get(region).is_some_and(|set| set.dial == 0 || set.share == 0);
        if !known.is_empty() && known.iter().all(is_closed) {
            let detail = "the dials of all regions in which there are edges are 0, and the name server disregards dials \
                          that leave nothing: leave one above 0";
            return Err(ApiError::field("dials", detail));
        }
        let former = self.store.dns_settings().await?;
        let has_anycast = set.answers.map_or(former.has_anycast, |answers| answers == AnycastAnswers::Anycast);
        self.store.set_dns_settings(&DnsSettings { regions, has_anycast }).await?;
        self.renew_dns_steering().await?;
        self.anycast_dials().await
    }

    fn dns_table(&self) -> SteeringTable {
        let parts = self.dns_steering.all();
        SteeringTable::new(parts.iter().map(AsRef::as_ref))
    }

    /// Which region the name server would answer a client, and why.
    pub(crate) async fn resolve_anycast(&self, query: AnycastResolveQuery) -> Result<AnycastResolution, ApiError> {
        let client = client_network(&query.client)?;
        let resolver = match query.resolver.as_deref() {
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Some(text) => {
                text.parse().map_err(|_| ApiError::field("resolver", "expected the address of a resolver"))?
            }
        };
        let subnet = ClientSubnet {
            family: if client.addr().is_ipv4() { 1 } else { 2 },
            address: client.network(),
            prefix: client.prefix_len(),
        };
        let asking = Asking { resolver, subnet: Some(subnet) };
        let head = self.dns_steering.get(0);
        let settings = head.as_ref().map(|head| head.regions.clone()).unwrap_or_default();
        let edges = serving(self.fleet.edges());
        let sites = sites(&edges, &settings);
        let (table, parts) = (Arc::new(self.dns_table()), self.dns_steering.all());
        let global: Vec<IpAddr> = head.as_ref().map(|head| head.global.clone()).unwrap_or_default();
        let steering = Steering::new(table.clone(), &sites, (&global, None), TTL_SECONDS).filter(|_| head.is_some());
        let everybody = |global: Vec<IpAddr>| match global.is_empty() {
            true => sites_of_all(&edges),
            false => global,
        };
        let of_name = query.name.as_deref().and_then(|name| self.why_not_steered(name));
        if let Some(why) = of_name {
            return Ok(unsteered(&client, Vec::new(), why));
        }
        let Some(steering) = steering else {
            let why = match (head.is_some(), parts.len() > 1, sites.len() > 1) {
                (false, ..) => "the name server does not steer: all clients get the addresses of all edges",
                (_, false, _) => "nothing was measured yet: all clients get the addresses of all edges",
                _ => "fewer than two regions have edges: all clients get the addresses of all edges",
            };
            return Ok(unsteered(&client, sites_of_all(&edges), why.to_owned()));
        };
        let (choice, _) = steering.choose(&asking);
        let region = steering.name(choice.region);
        let addresses = match region.and_then(|region| sites.iter().find(|site| site.region == *region)) {
            Some(site) => site.addresses.clone(),
            None => everybody(global),
        };
        let ranked = table.ranking(&asking, choice.reason).into_iter().map(|region| {
            let set = settings.get(region).cloned().unwrap_or_default();
            RankedRegion {
                region: region.to_string(),
                has_edges: sites.iter().any(|site| site.region == *region),
                dial: set.dial,
                share: set.share,
            }
        });
        let why = sentence(&client, &asking, &choice, region, steering.name(choice.nearest));
        Ok(AnycastResolution {
            client: client.to_string(),
            region: region.map(ToString::to_string),
            nearest: steering.name(choice.nearest).map(ToString::to_string),
            reason: Some(reason(choice.reason)),
            scope: choice.scope,
            regions: ranked.collect(),
            addresses,
            why,
        })
    }

    /// Why the answers for a name are the same for every client; `None` if they are chosen.
    fn why_not_steered(&self, name: &str) -> Option<String> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let is_within = |apex: &str| name == apex || name.strip_suffix(apex).is_some_and(|rest| rest.ends_with('.'));
        let zones = self.zones.all();
        let Some(zone) = zones.iter().filter(|zone| is_within(&zone.apex)).max_by_key(|zone| zone.apex.len()) else {
            return Some(format!("{name} is in no zone of the name server"));
        };
        let at = |owner: &str| {
            zone.records.iter().filter(|record| record.name.eq_ignore_ascii_case(owner)).collect::<Vec<_>>()
        };
        let (mut owner, mut records) = (name.clone(), at(&name));
        let mut rest = name.as_str();
        while let Some((_, above)) = rest.split_once('.').filter(|_| records.is_empty() && rest.len() > zone.apex.len())
        {
            owner = format!("*.{above}");
            (records, rest) = (at(&owner), above);
        }
        let is_steered = records.iter().any(|record| record.record_type == "EDGES" && record.value == ALL_EDGES);
        (!is_steered)
            .then(|| format!("{owner} has not the addresses of all edges: its answers are the same for every client"))
    }
}

fn client_network(text: &str) -> Result<IpNet, ApiError> {
    let address = text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    let network = address.or_else(|| text.parse::<IpNet>().ok());
    network.map(|network| network.trunc()).ok_or_else(|| {
        ApiError::field("client", "expected the address or the network of a client, such as 192.0.2.7 or 192.0.2.0/24")
    })
}

fn unsteered(client: &IpNet, addresses: Vec<IpAddr>, why: String) -> AnycastResolution {
    AnycastResolution {
        client: client.to_string(),
        region: None,
        nearest: None,
        reason: None,
        scope: 0,
        regions: Vec::new(),
        addresses,
        why,
    }
}

/// The edges that clients are sent to, as the name server sees them.
fn serving(mut edges: Vec<FleetEdge>) -> Vec<FleetEdge> {
    edges.retain(|edge| !edge.card.addresses.is_empty());
    if edges.iter().any(|edge| edge.card.state == EdgeState::Serving) {
        edges.retain(|edge| edge.card.state == EdgeState::Serving);
    }
    edges
}

fn sites_of_all(edges: &[FleetEdge]) -> Vec<IpAddr> {
    let all = edges.iter().flat_map(|edge| edge.card.addresses.iter().map(std::net::SocketAddr::ip));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

fn sites(edges: &[FleetEdge], settings: &BTreeMap<RegionName, DnsRegion>) -> Vec<Site> {
    let mut by_region: BTreeMap<RegionName, BTreeSet<IpAddr>> = BTreeMap::new();
    for edge in edges {
        let of_region = by_region.entry(edge.card.region.clone()).or_default();
        of_region.extend(edge.card.addresses.iter().map(std::net::SocketAddr::ip));
    }
    let site = |(region, of_edges): (RegionName, BTreeSet<IpAddr>)| {
        let set = settings.get(&region).cloned().unwrap_or_default();
        let addresses = if set.addresses.is_empty() { of_edges.into_iter().collect() } else { set.addresses };
        Site { region, addresses, ports: None, keep: Keep::new(set.dial, set.share), slot: 0 }
    };
    by_region.into_iter().map(site).collect()
}

fn reason(reason: ChoiceReason) -> ResolutionReason {
    match reason {
        ChoiceReason::Subnet => ResolutionReason::Subnet,
        ChoiceReason::Resolver => ResolutionReason::Resolver,
        ChoiceReason::Network => ResolutionReason::Network,
        ChoiceReason::Global => ResolutionReason::Global,
    }
}

fn sentence(
    client: &IpNet,
    asking: &Asking,
    choice: &Choice,
    region: Option<&RegionName>,
    nearest: Option<&RegionName>,
) -> String {
    let Some((region, nearest)) = region.zip(nearest) else {
        let is_believed = asking.subnet.as_ref().is_some_and(|subnet| believed_network(subnet).is_some());
        return match is_believed {
            true => format!("nothing was measured for {client}: it gets the addresses for everybody"),
            false => format!("{client} is no public network: resolvers' networks are looked at in its place"),
        };
    };
    let what = match choice.reason {
        ChoiceReason::Subnet => format!("the network of {client} was measured"),
        ChoiceReason::Resolver => "the clients of its resolver were measured".to_owned(),
        ChoiceReason::Network | ChoiceReason::Global => "the network of its resolver was measured".to_owned(),
    };
    match region == nearest {
        true => format!("{what}: {region} is the best region that has edges"),
        false => {
            format!("{what}: {nearest} is the best region that has edges, and its dial passes this one on to {region}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_one_region_are_regional_and_those_of_all_global() {
        let prefix = |net: &str, regions: &[&str]| sallyport_anycast::model::AnycastPrefix {
            net: net.parse().unwrap(),
            addresses: vec![net.parse::<IpNet>().unwrap().hosts().next().unwrap()],
            regions: regions.iter().map(|name| name.parse().unwrap()).collect(),
            communities: Vec::new(),
            min_sites: 1,
        };
        let config = AnycastConfig {
            prefixes: vec![
                prefix("198.51.100.0/24", &[]),
                prefix("198.51.101.0/24", &["eu"]),
                prefix("198.51.102.0/24", &["eu", "us"]),
            ],
            ..AnycastConfig::default()
        };
        let eu: RegionName = "eu".parse().unwrap();
        let dialed = DnsRegion { dial: 50, ..DnsRegion::default() };
        let settings = |has_anycast| DnsSettings { regions: [(eu.clone(), dialed.clone())].into(), has_anycast };
        let (regions, global) = with_addresses(settings(true), &config);
        assert_eq!(global, [IpAddr::from([198, 51, 100, 1])]);
        assert_eq!((regions[&eu].dial, regions[&eu].addresses.as_slice()), (50, &[[198, 51, 101, 1].into()][..]));
        let (regions, global) = with_addresses(settings(false), &config);
        assert!(global.is_empty() && regions[&eu] == dialed, "unless an operator says so, edges are answered");
    }
}
