//! Where clients land: real requests from each client network, and the path that its router takes.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::Asked;
use crate::{
    anycast::{ANYCAST_4, ANYCAST_6, Network, NetworkKind},
    error::LabError,
    process::Started,
    state::Lab,
};

/// How many requests each client network sends in each family.
const REQUESTS: u64 = 4;
/// How long each may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// After how long requests end by themselves.
const MAX_TIME: Duration = Duration::from_secs(600);
/// How long all paths may take to be there.
const PATHS_TIME: Duration = Duration::from_secs(60);
/// Paths that stay the same for so long are taken for settled.
const SETTLED: Duration = Duration::from_millis(500);

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    Four,
    /// IPv6.
    #[serde(rename = "IPv6")]
    Six,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Four, Self::Six];

    /// The anycast address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        match self {
            Self::Four => ANYCAST_4.2.into(),
            Self::Six => ANYCAST_6.2.into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Four => "IPv4",
            Self::Six => "IPv6",
        })
    }
}

/// Where the requests of a client network landed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The node of the clients.
    pub clients: String,
    /// Their network.
    pub asn: u32,
    /// The family.
    pub family: Family,
    /// Good answers by site.
    pub by_site: BTreeMap<String, u64>,
    /// Requests without a good answer.
    pub failed: u64,
    /// The median time of an answer with its connection, in microseconds.
    pub median_us: u64,
    /// The networks on the way, the nearest first and that of the edges last.
    pub path: Vec<u32>,
}

/// Options of requests from a node.
pub(super) struct Asking<'a> {
    pub(super) node: &'a str,
    pub(super) family: Family,
    pub(super) rate: u32,
    pub(super) requests: Option<u64>,
    pub(super) patience: Duration,
    pub(super) flows: u16,
}

/// Requests that are being sent.
pub(super) struct Load(Child);

impl Load {
    /// Ends the requests, and returns their report.
    pub(super) fn end(self) -> Result<Asked, LabError> {
        let started = i32::try_from(self.0.id()).ok().and_then(Started::of);
        if let Some(started) = started {
            started.signal(Signal::INT).map_err(LabError::io("end the requests"))?;
        }
        self.report()
    }

    fn report(self) -> Result<Asked, LabError> {
        let output = self.0.wait_with_output().map_err(LabError::io("wait for the requests"))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            LabError::Unfit(format!(
                "the requests have no report: {error}: {}",
                String::from_utf8_lossy(&output.stderr)
            ))
        })
    }
}

impl Lab {
    /// Where the clients of each network land, in both families.
    ///
    /// # Errors
    /// This is no anycast laboratory, or a request cannot be sent at all.
    pub fn landings(&self) -> Result<Vec<Landing>, LabError> {
        let clients = self.internet()?.networks.iter().filter(|network| network.kind == NetworkKind::Clients);
        let mut landings = Vec::new();
        for network in clients {
            for family in Family::ALL {
                let asked = self.ask_from(&Asking {
                    node: &network.name,
                    family,
                    rate: 20,
                    requests: Some(REQUESTS),
                    patience: PATIENCE,
                    flows: 0,
                })?;
                let asked = asked.report()?;
                let sites = asked
                    .by_origin
                    .iter()
                    .map(|(origin, count)| (origin.strip_suffix("-origin").unwrap_or(origin).to_owned(), *count));
                landings.push(Landing {
                    clients: network.name.clone(),
                    asn: network.asn,
                    family,
                    by_site: sites.collect(),
                    failed: asked.failed,
                    median_us: asked.median_us,
                    path: self.path(network, family),
                });
            }
        }
        Ok(landings)
    }

    /// A client network that lands at a site in both families, that of its city first.
    pub(super) fn clients_of(&self, site: usize) -> Result<String, LabError> {
        let internet = self.internet()?;
        let city = internet.sites[site];
        let clients = internet.networks.iter().filter(|network| network.kind == NetworkKind::Clients);
        let mut clients: Vec<_> = clients.collect();
        clients.sort_by_key(|network| network.site != site);
        for network in clients {
            let mut is_landed = true;
            for family in Family::ALL {
                let asking =
                    Asking { node: &network.name, family, rate: 1, requests: Some(1), patience: PATIENCE, flows: 0 };
                is_landed &= self.ask_from(&asking)?.report()?.by_origin.contains_key(&format!("{city}-origin"));
            }
            if is_landed {
                return Ok(network.name.clone());
            }
        }
        Err(LabError::Unfit(format!("no client network lands at {city}: `sallyport lab anycast status` shows where")))
    }

    /// Waits until all networks speak with one another, and their clients' paths no longer change.
    pub(crate) fn wait_for_paths(&self) -> Result<(), LabError> {
        let internet = self.internet()?;
        let (began, mut before) = (Instant::now(), None);
        loop {
            let has_sessions = internet.networks.iter().enumerate().all(|(number, network)| {
                let sessions = internet.sessions(number);
                let protocols = self.birdc(&self.bird_of(network), "show protocols").unwrap_or_default();
                are_established(&protocols, &sessions)
            });
            let paths = self.paths();
            if has_sessions && before.as_ref() == Some(&paths) {
                return Ok(());
            }
            before = Some(paths);
            if began.elapsed() > PATHS_TIME {
                let what = "a settled path from each client".to_owned();
                let seen = format!("{before:?}");
                return Err(LabError::Late { what, seconds: PATHS_TIME.as_secs(), seen });
            }
            thread::sleep(SETTLED);
        }
    }

    /// The path from each client network in each family.
    fn paths(&self) -> Vec<Vec<u32>> {
        let networks = self.plan.internet.iter().flat_map(|internet| &internet.networks);
        let clients = networks.filter(|network| network.kind == NetworkKind::Clients);
        clients.flat_map(|clients| Family::ALL.map(|family| self.path(clients, family))).collect()
    }

    fn path(&self, clients: &Network, family: Family) -> Vec<u32> {
        let words = format!("show route for {} all", family.address());
        best_path(&self.birdc(&self.bird_of(clients), &words).unwrap_or_default())
    }

    /// The name of the BIRD of a network.
    fn bird_of(&self, network: &Network) -> String {
        match network.kind {
            NetworkKind::Clients => format!("{}-bird", network.name),
            _ => network.name.clone(),
        }
    }

    /// Starts requests from a node to an anycast address.
    pub(super) fn ask_from(&self, asking: &Asking<'_>) -> Result<Load, LabError> {
        let mut command = self.command_on(asking.node, &self.state.programs.lab.display().to_string())?;
        command.args(["anycast", "ask", &format!("https://{}/", self.secrets.host)]);
        command.args(["--address", &asking.family.address().to_string(), "--rate", &asking.rate.to_string()]);
        command.args(["--time", &format!("{}s", MAX_TIME.as_secs())]);
        command.args(["--patience", &format!("{}ms", asking.patience.as_millis())]);
        command.args(["--flows", &asking.flows.to_string(), "-o", "json"]);
        if let Some(requests) = asking.requests {
            command.args(["--requests", &requests.to_string()]);
        }
        // Ctrl-C at this process is not for them: they end when they are told.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Load(command.spawn().map_err(LabError::io("start ip"))?))
    }
}

/// Whether an answer of `show protocols` has all these, established.
fn are_established(answer: &str, sessions: &[String]) -> bool {
    let up: Vec<&str> = answer
        .lines()
        .filter(|line| line.trim_end().ends_with("Established"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    sessions.iter().all(|session| up.contains(&session.as_str()))
}

/// The path of the best route in an answer of `show route all`, which lists it first.
fn best_path(answer: &str) -> Vec<u32> {
    let path = answer.lines().find_map(|line| line.trim().strip_prefix("BGP.as_path:"));
    let numbers = path.into_iter().flat_map(str::split_whitespace).filter_map(|number| number.parse().ok());
    let mut path: Vec<u32> = numbers.collect();
    // Prepended numbers are one network.
    path.dedup();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_established_or_not() {
        let answer = "Name       Proto      Table      State  Since         Info\n\
                      as1299_4   BGP        ---        up     07:44:19.1    Established   \n\
                      as209_4    BGP        ---        start  07:44:19.1    Connect       \n";
        assert!(are_established(answer, &["as1299_4".to_owned()]) && !are_established(answer, &["as209_4".to_owned()]));
        assert!(!are_established("", &["as1299_4".to_owned()]));
    }

    #[test]
    fn the_best_route_is_the_first_one() {
        let answer = "Table master4:\n198.51.100.0/24  unicast [as3356_4 07:00] * (100) [AS64500i]\n\
                      \tvia 10.10.9.1 on link9\n\tType: BGP univ\n\tBGP.origin: IGP\n\
                      \tBGP.as_path: 3356 209 64500 64500\n\tunicast [as2914_4] (100)\n\tBGP.as_path: 2914 1299 64500\n";
        assert_eq!(best_path(answer), [3356, 209, 64_500]);
        assert!(best_path("Network not found\n").is_empty());
    }
}
