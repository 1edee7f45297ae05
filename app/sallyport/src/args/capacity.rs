//! What an origin, or a region of a socket, can carry, as options.

use std::{collections::BTreeMap, str::FromStr};

use clap::Args;
use sallyport_model::{Capacity, CapacityName, EndpointGroup, MAX_ORIGIN_CONNECTIONS, MaxRps, RegionName};

use crate::failure::Failure;

/// The value that removes a limit.
const OFF: &str = "off";

/// A limit, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrOff<T>(Option<T>);

impl<T: FromStr<Err: ToString>> FromStr for OrOff<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|error: T::Err| error.to_string())
    }
}

/// A number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connections(u32);

impl FromStr for Connections {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|most| (1..=MAX_ORIGIN_CONNECTIONS).contains(most));
        number.map(Self).ok_or_else(|| format!("expected 1 to {MAX_ORIGIN_CONNECTIONS}, or off"))
    }
}

/// What an origin can carry.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CapacityArgs {
    /// The most new requests per second that the service takes from all edges (tcp, tls, udp: connections); auto: as
    /// many as it answers without getting slow; off: any number
    #[arg(long, value_name = "RPS|auto", allow_hyphen_values = true)]
    max_rps: Option<OrOff<MaxRps>>,
    /// The most requests at once that the service takes from all edges (tcp, tls, udp: connections); off: any number
    #[arg(long, alias = "origin-max-connections", value_name = "COUNT")]
    max_connections: Option<OrOff<Connections>>,
    /// All services with this name have these limits together, such as the database behind them; off: none
    #[arg(long, value_name = "NAME")]
    shared_capacity: Option<OrOff<CapacityName>>,
}

/// What the service of a connector can carry, beside options of its socket.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What the service can carry")]
pub(crate) struct ServiceCapacityArgs {
    /// The most new requests per second that the service takes from all edges (tcp, tls, udp: connections); auto: as
    /// many as it answers without getting slow. With --path, each service has this limit
    #[arg(long, value_name = "RPS|auto", allow_hyphen_values = true)]
    max_rps: Option<OrOff<MaxRps>>,
    /// The most requests at once that the service takes from all edges (tcp, tls, udp: connections). For a tunnel, this
    /// is --max-connections of `tunnel edit`; --max-connections of a socket bounds the clients at each edge
    #[arg(long, value_name = "COUNT")]
    origin_max_connections: Option<OrOff<Connections>>,
    /// All services with this name have these limits together, such as the database behind them
    #[arg(long, value_name = "NAME")]
    shared_capacity: Option<OrOff<CapacityName>>,
}

impl ServiceCapacityArgs {
    /// Whether no option was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.max_rps.is_none() && self.origin_max_connections.is_none() && self.shared_capacity.is_none()
    }

    /// The capacity; `None` without a limit.
    ///
    /// # Errors
    /// A shared capacity has no limit.
    pub(crate) fn get(&self) -> Result<Option<Capacity>, Failure> {
        let Self { max_rps, origin_max_connections: max_connections, shared_capacity } = self.clone();
        let capacity = CapacityArgs { max_rps, max_connections, shared_capacity }.change(None).unwrap_or_default();
        capacity.check().map_err(|_| {
            Failure::usage("--shared-capacity needs a limit that is shared")
                .next("add --max-rps or --origin-max-connections")
        })?;
        Ok(Some(capacity).filter(|capacity| !capacity.is_empty()))
    }
}

impl CapacityArgs {
    /// Whether no option was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.max_rps.is_none() && self.max_connections.is_none() && self.shared_capacity.is_none()
    }

    /// The capacity after the change; `None` without an option.
    pub(crate) fn change(self, now: Option<Capacity>) -> Option<Capacity> {
        if self.is_empty() {
            return None;
        }
        let mut capacity = now.unwrap_or_default();
        self.apply(&mut capacity);
        Some(capacity)
    }

    fn apply(self, capacity: &mut Capacity) {
        if let Some(OrOff(max_rps)) = self.max_rps {
            capacity.max_rps = max_rps;
        }
        if let Some(OrOff(most)) = self.max_connections {
            capacity.max_connections = most.map(|most| most.0);
        }
        if let Some(OrOff(shared)) = self.shared_capacity {
            capacity.shared = shared;
        }
    }
}

/// A value for a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForRegion<T>(RegionName, OrOff<T>);

impl<T: FromStr<Err: ToString>> FromStr for ForRegion<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "expected REGION=VALUE such as eu=200, or REGION=off";
        let (region, value) = text.split_once('=').ok_or(wrong)?;
        Ok(Self(region.parse::<RegionName>().map_err(|error| error.to_string())?, value.parse()?))
    }
}

/// What the origins of regions can carry together.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RegionCapacityArgs {
    /// The most new requests per second that all services of a region take together: eu=200, eu=auto, eu=off
    #[arg(long, value_name = "REGION=RPS", value_delimiter = ',')]
    region_max_rps: Vec<ForRegion<MaxRps>>,
    /// The most requests at once that all services of a region take together: eu=500, eu=off
    #[arg(long, value_name = "REGION=COUNT", value_delimiter = ',')]
    region_max_connections: Vec<ForRegion<Connections>>,
    /// A region has its limits together with all services of this name: eu=database, eu=off
    #[arg(long, value_name = "REGION=NAME", value_delimiter = ',')]
    region_shared_capacity: Vec<ForRegion<CapacityName>>,
}

impl RegionCapacityArgs {
    /// Whether no option was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.region_max_rps.is_empty()
            && self.region_max_connections.is_empty()
            && self.region_shared_capacity.is_empty()
    }

    /// Changes the groups. A group without any setting is removed.
    pub(crate) fn change(self, regions: &mut BTreeMap<RegionName, EndpointGroup>) {
        let rates = self.region_max_rps.into_iter();
        let rates = rates
            .map(|ForRegion(region, value)| (region, CapacityArgs { max_rps: Some(value), ..CapacityArgs::default() }));
        let counts = self.region_max_connections.into_iter();
        let counts = counts.map(|ForRegion(region, value)| {
            (region, CapacityArgs { max_connections: Some(value), ..CapacityArgs::default() })
        });
        let names = self.region_shared_capacity.into_iter();
        let names = names.map(|ForRegion(region, value)| {
            (region, CapacityArgs { shared_capacity: Some(value), ..CapacityArgs::default() })
        });
        for (region, change) in rates.chain(counts).chain(names) {
            change.apply(&mut regions.entry(region).or_default().capacity);
        }
        regions.retain(|_, group| *group != EndpointGroup::default());
    }
}

/// The capacity in a few words, such as `200 rps, 50 at once, shared as db`; empty for any amount.
pub(crate) fn words(capacity: &Capacity) -> String {
    let rps = capacity.max_rps.map(|rps| match rps {
        MaxRps::Declared(rps) => format!("{rps} rps"),
        MaxRps::Learned => "rps as learned".to_owned(),
    });
    let most = capacity.max_connections.map(|most| format!("{most} at once"));
    let shared = capacity.shared.as_ref().map(|name| format!("shared as {name}"));
    rps.into_iter().chain(most).chain(shared).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        capacity: CapacityArgs,
        #[command(flatten)]
        regions: RegionCapacityArgs,
    }

    #[derive(Debug, Parser)]
    struct OfService {
        #[command(flatten)]
        capacity: ServiceCapacityArgs,
    }

    #[test]
    fn a_service_has_the_limits_of_its_tunnel() {
        let of_service = |text: &str| {
            let words = std::iter::once("x").chain(text.split_whitespace());
            OfService::try_parse_from(words).map(|line| line.capacity.get().map_err(|failure| failure.message))
        };
        let set = of_service("--max-rps auto --origin-max-connections 5 --shared-capacity db").unwrap().unwrap();
        let set = set.unwrap();
        assert_eq!(words(&set), "rps as learned, 5 at once, shared as db");
        let same = line("--max-rps auto --origin-max-connections 5 --shared-capacity db").unwrap().capacity;
        assert_eq!(same.change(None), Some(set), "the name of the option is known there too");
        assert_eq!((of_service("").unwrap(), of_service("--max-rps off").unwrap()), (Ok(None), Ok(None)));
        let alone = of_service("--shared-capacity db").unwrap().unwrap_err();
        assert_eq!(alone, "--shared-capacity needs a limit that is shared");
        for bad in ["--max-rps 0", "--max-rps NaN", "--origin-max-connections 0", "--shared-capacity DB"] {
            assert!(of_service(bad).is_err(), "{bad}");
        }
    }

    fn line(text: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(text.split_whitespace()))
    }

    #[test]
    fn limits_change_one_by_one_and_go_by_off() {
        let set = line("--max-rps 200 --shared-capacity db").unwrap().capacity.change(None).unwrap();
        assert_eq!(words(&set), "200 rps, shared as db");
        let more = line("--max-connections 5 --max-rps auto").unwrap().capacity.change(Some(set)).unwrap();
        assert_eq!(words(&more), "rps as learned, 5 at once, shared as db");
        let off = line("--max-rps off --shared-capacity off --max-connections off").unwrap().capacity;
        assert_eq!(off.change(Some(more)), Some(Capacity::default()));
        assert_eq!(line("").unwrap().capacity.change(None), None);
        for bad in [
            "--max-rps 0",
            "--max-rps NaN",
            "--max-rps -1",
            "--max-rps 1e9",
            "--max-rps 1000000000",
            "--max-connections 0",
            "--shared-capacity DB",
            "--region-max-rps eu",
            "--region-max-rps eu=x",
            "--region-max-rps EU=1",
        ] {
            assert!(line(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn regions_have_limits_beside_their_dials() {
        let mut regions = BTreeMap::new();
        regions.insert("us".parse().unwrap(), EndpointGroup { dial: 20, ..EndpointGroup::default() });
        let args = line("--region-max-rps eu=200,us=auto --region-max-connections us=9").unwrap().regions;
        args.change(&mut regions);
        let shown: Vec<_> = regions.values().map(|group| (group.dial, words(&group.capacity))).collect();
        assert_eq!(shown, [(100, "200 rps".to_owned()), (20, "rps as learned, 9 at once".to_owned())]);
        line("--region-max-rps eu=off,us=off --region-max-connections us=off").unwrap().regions.change(&mut regions);
        assert_eq!(regions.len(), 1, "the dial stays");
    }
}
