//! `packet router run`: the router, and the process that keeps it equal to the kernel.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::{Output, note},
};
use sallyport_packet_model::follow::{Follower, Leg};
use sallyport_xdp::{
    FibMaps, FibSizes, FibStatus, Link, Router, Shared, Urpf, XdpError,
    kernel::{
        Device, Neighbor, forwards,
        netlink::{self, Event, Events, List, Received},
    },
};

use crate::{
    command::{
        kernel, name_of, replace,
        router::{
            prober::Prober,
            up::{Rules, UpArgs, ports_of, say, say_if_off},
        },
    },
    config::{Config, Lookup},
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet router run --dev eth1,eth2 --lookup fib
  sallyport packet router run --config router.toml --metrics /var/lib/node_exporter/sallyport.prom";

/// Events of one batch.
const MAX_BATCH: usize = 50_000;
/// How often the status, metrics and `sysctl` are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How often nftables is asked whether it still has the tables of the router.
const RULES_EVERY: Duration = Duration::from_secs(5);
/// The least time between two listings of all routes.
const LISTING_PAUSE: Duration = Duration::from_millis(200);
/// How often room that routes have left is made free.
const REUSE_EVERY: Duration = Duration::from_secs(10);

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    up: UpArgs,
    /// Write metrics to this file, as Prometheus reads it
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// With the lookup fib: follow the main table alone, whatever other rules `ip rule` has
    #[arg(long)]
    ignore_rules: bool,
}

/// The tables of the lookup `fib`, and what fills them.
struct Tables {
    maps: FibMaps,
    follower: Follower<Shared>,
    neighbors: HashMap<(u32, IpAddr), [u8; 6]>,
    refused_neighbors: HashSet<(u32, IpAddr)>,
    links: HashMap<u32, Link>,
    /// The devices of the router, with their names.
    ports: HashMap<u32, String>,
    up: HashSet<u32>,
    /// Whether rules that the tables do not know change nothing.
    ignores_rules: bool,
    /// Whether the kernel looks up, because of such rules.
    is_by_kernel: bool,
}

/// What is to be done after a batch.
#[derive(Debug, Default)]
struct Todo {
    /// All routes are to be listed.
    lists: bool,
    /// Devices or addresses have changed.
    refreshes: bool,
    /// The rules are to be counted.
    counts_rules: bool,
}

/// Runs the router until the process ends. The packets go on then.
pub(super) async fn run(output: Output, router: &Router, args: RunArgs) -> anyhow::Result<()> {
    let mut config = args.up.config()?;
    config.metrics = args.metrics.clone().or(config.metrics);
    let sizes = config.limits.sizes()?;
    // The file is tried before anything is changed.
    if let Some(file) = &config.metrics {
        let failed = |error| Failure::new(Kind::Failed, format!("{error:#}"));
        replace(file, "").map_err(|error| failed(error).next("make its folder, or name another file"))?;
    }
    let (_, mut devices) = kernel().await?;
    ports_of(&config, &mut devices)?;
    let Some(_lock) = router.follow()? else {
        let failure = Failure::new(Kind::Refused, "another process follows this router already");
        return Err(failure.next("end that `router run` first, or keep another router by --pins FOLDER").into());
    };
    let mut status = FibStatus::default();
    let (mut has_stood, mut said) = (false, String::new());
    loop {
        match stand((!has_stood).then_some(output), router, (&config, &sizes, &args), &mut status)
            .await
            .map_err(anyhow::Error::downcast)
        {
            Ok(ports) => {
                note(&format!("{ports}: without the router's program, so the router is brought up again"));
                has_stood = true;
            }
            Err(Ok(XdpError::NotUp)) => {
                note("the router was taken down, so this process ends");
                return Ok(());
            }
            Err(Ok(XdpError::Changing)) if has_stood => tokio::time::sleep(TICK).await,
            Err(error) => {
                let error = error.map_or_else(|other| other, anyhow::Error::new);
                if !has_stood {
                    return Err(error);
                }
                // A device that was made anew may lack a setting that a port needs, such as GRO of its peer.
                let now = format!("{error:#}");
                if std::mem::replace(&mut said, now.clone()) != now {
                    note(&format!("{now}; it is tried again each second"));
                }
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

/// Brings the router up, and follows the kernel until ports are without a program. Says which ports.
///
/// The first time it prints what has changed.
async fn stand(
    first: Option<Output>,
    router: &Router,
    (config, sizes, args): (&Config, &FibSizes, &RunArgs),
    status: &mut FibStatus,
) -> anyhow::Result<String> {
    let (_, mut devices) = kernel().await?;
    let ports = ports_of(config, &mut devices)?;
    let change = router.change()?;
    if first.is_none() {
        // Ports are without a program also because somebody has taken the router down.
        router.ports()?;
    }
    let rules = Rules::of(router, config, args.up.file(), &devices)?;
    let router = rules.router();
    // Events from here on wait until the lists are read.
    let mut events = Events::open(config.limits.netlink_bytes as usize)?;
    let (mut tables, mut todo) = (None, Todo::default());
    let changed;
    if config.lookup == Lookup::Fib {
        if first.is_some() && !args.ignore_rules {
            refuse_rules()?;
        }
        let maps = router.tables(sizes)?;
        let follower = Follower::new(maps.storage(), sizes.groups)?.with_room(config.limits.routes as usize);
        let mut made = Tables {
            maps,
            follower,
            neighbors: HashMap::new(),
            refused_neighbors: HashSet::new(),
            links: HashMap::new(),
            ports: HashMap::new(),
            up: HashSet::new(),
            ignores_rules: args.ignore_rules,
            is_by_kernel: false,
        };
        made.set_ports(&ports, &devices);
        todo.lists = !is_whole(made.list(status))?;
        made.look_at_rules(status)?;
        made.write(status)?;
        changed = rules.around(|router| router.up_with(&mut made.maps, &ports, &devices)).await?;
        tables = Some(made);
    } else {
        changed = rules.around(|router| router.up(&ports, &devices)).await?;
    }
    drop(change);
    let prober = Prober::start(router).context("the thread that probes next hops does not start")?;
    if let Some(output) = first {
        say(output, changed, rules.removed())?;
        say_if_off(output, &ports);
        output.hint("following the kernel; the programs stay when this process ends");
    }
    follow((&rules, &prober, todo), config, devices, &mut events, tables.as_mut(), status).await
}

/// Other tables than `local` and `main` are not followed.
fn refuse_rules() -> anyhow::Result<()> {
    let others = count_rules()?;
    if others > 0 {
        let said = format!("the lookup fib follows the main table alone, and `ip rule` has {others} rules more");
        return Err(Failure::new(Kind::Refused, said)
            .next("remove them, look up by --lookup kernel, or let them change nothing by --ignore-rules")
            .into());
    }
    Ok(())
}

/// The rules that the tables do not know.
fn count_rules() -> Result<u64, XdpError> {
    let mut others = 0;
    for family in [List::Rules4, List::Rules6] {
        netlink::list(family, |event| {
            others += u64::from(matches!(event, Event::Rule { is_standard: false }));
        })?;
    }
    Ok(others)
}

/// Whether a list was whole. One that was not is read again later.
fn is_whole(listed: Result<(), XdpError>) -> Result<bool, XdpError> {
    match listed {
        Ok(()) => Ok(true),
        Err(XdpError::ListChanged(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Follows the events of the kernel until ports are without a program: such as are made anew. Says which ports.
async fn follow(
    (rules, prober, mut todo): (&Rules, &Prober, Todo),
    config: &Config,
    mut devices: Vec<Device>,
    events: &mut Events,
    mut tables: Option<&mut Tables>,
    status: &mut FibStatus,
) -> anyhow::Result<String> {
    let (router, mut rules_seen) = (rules.router(), Instant::now());
    let mut said = String::new();
    let (mut ticked, mut listed, mut reused) = (Instant::now(), Instant::now(), Instant::now());
    let mut writer = MetricsWriter::default();
    write_metrics(router, config, &devices, status)?;
    loop {
        let pause = if todo.lists { LISTING_PAUSE } else { TICK };
        events.wait(pause)?;
        let read = events.read(MAX_BATCH, |event| {
            if matches!(event, Event::Route { .. } | Event::Object(..)) {
                prober.record_routes();
            }
            take(event, tables.as_deref_mut(), &mut todo);
        })?;
        match read {
            Received::Events(count) => status.events += count as u64,
            Received::Overrun => {
                status.overruns += 1;
                prober.record_routes();
                todo = Todo { lists: true, refreshes: true, counts_rules: true };
            }
        }
        if let Some(tables) = tables.as_deref_mut() {
            if todo.lists && listed.elapsed() >= LISTING_PAUSE {
                todo.lists = !is_whole(tables.list(status))?;
                listed = Instant::now();
            }
            todo.lists |= tables.follower.has_room_again();
            if todo.counts_rules {
                todo.counts_rules = !is_whole(tables.look_at_rules(status))?;
            }
            tables.write(status)?;
            let is_full = !tables.follower.full().is_none() || !tables.refused_neighbors.is_empty();
            let wants_room = is_full && reused.elapsed() >= TICK;
            if wants_room || reused.elapsed() >= REUSE_EVERY {
                tables.maps.wait_for_readers();
                tables.follower.reuse();
                tables.try_neighbors();
                tables.write(status)?;
                reused = Instant::now();
            }
        } else {
            (todo.lists, todo.counts_rules) = (false, false);
        }
        if todo.refreshes {
            devices = kernel().await?.1;
            match ports_of(config, &mut devices) {
                Ok(ports) => {
                    let missing = router.missing(ports.iter().map(|(device, _)| device))?;
                    if !missing.is_empty() {
                        return Ok(missing.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", "));
                    }
                    router.refresh(&ports, &devices)?;
                    if let Some(tables) = tables.as_deref_mut() {
                        tables.set_ports(&ports, &devices);
                    }
                }
                Err(error) => {
                    let now = error.to_string();
                    if std::mem::replace(&mut said, now.clone()) != now {
                        note(&format!("the table of ports stays as it is until the device is back: {now}"));
                    }
                }
            }
            todo.refreshes = false;
        }
        if rules_seen.elapsed() >= RULES_EVERY {
            match rules.restore().await {
                Ok(lost) => lost.iter().for_each(|what| {
                    note(&format!("nftables had lost the {what} of the router: it is set again"));
                }),
                // Packets go on by XDP, and the next turn tries again.
                Err(error) => note(&error.message),
            }
            rules_seen = Instant::now();
        }
        if ticked.elapsed() >= TICK {
            if let Some(tables) = tables.as_deref_mut() {
                tables.look_at_forwarding();
            }
            writer.write(router, config, &devices, status)?;
            ticked = Instant::now();
        }
    }
}

/// Takes an event.
fn take(event: Event, tables: Option<&mut Tables>, todo: &mut Todo) {
    todo.refreshes |= matches!(event, Event::Device(_) | Event::NoDevice(_));
    if let Some(tables) = tables {
        tables.take(event, todo);
    }
}

impl Tables {
    /// Takes an event.
    fn take(&mut self, event: Event, todo: &mut Todo) {
        match event {
            Event::Route { route, is_there: true, is_appended, replaces } => {
                // The kernel says only what was added, and not what decides.
                todo.lists |= is_appended || !self.follower.add(route, replaces);
            }
            Event::Route { route, .. } => todo.lists |= !self.follower.remove(&route),
            Event::Object(id, object) => {
                // Routes of an object that is gone are gone without a word.
                todo.lists |= object.is_none();
                self.follower.set_object(id, object);
            }
            Event::Neighbor(neighbor) => self.set_neighbor(&neighbor, true),
            Event::NoNeighbor(neighbor) => self.set_neighbor(&neighbor, false),
            Event::Device(device) => todo.lists |= self.set_device(&device),
            Event::NoDevice(index) => {
                self.up.remove(&index);
                self.links.remove(&index);
                self.follower.set_up(index, false);
                todo.lists = true;
            }
            Event::NoAddress => todo.lists = true,
            Event::Rule { .. } => todo.counts_rules = true,
            Event::Address => {}
        }
    }

    /// With rules that the tables do not know, the kernel looks up: its routes follow all rules.
    fn look_at_rules(&mut self, status: &mut FibStatus) -> Result<(), XdpError> {
        if self.ignores_rules {
            return Ok(());
        }
        let had_rules = status.rules > 0;
        status.rules = count_rules()?;
        if had_rules != (status.rules > 0) {
            note(if status.rules > 0 {
                "`ip rule` has a rule that the lookup fib does not follow: the kernel looks up until the rule is gone"
            } else {
                "`ip rule` has no other rule any more: the lookup fib goes on"
            });
        }
        self.choose_lookup(status);
        Ok(())
    }

    /// Lets the kernel look up where the tables would send packets another way.
    fn choose_lookup(&mut self, status: &FibStatus) {
        let is_by_kernel = status.rules > 0 || status.left_out > 0;
        if std::mem::replace(&mut self.is_by_kernel, is_by_kernel) != is_by_kernel {
            for link in self.links.values().copied().collect::<Vec<_>>() {
                self.set_link(link);
            }
        }
    }

    fn set_neighbor(&mut self, neighbor: &Neighbor, is_there: bool) {
        let key = (neighbor.device, neighbor.address);
        let is_failed = is_there && neighbor.state == "failed";
        let mac = neighbor.mac.filter(|_| is_there && !matches!(neighbor.state, "failed" | "incomplete"));
        if self.neighbors.get(&key).copied() != mac || self.refused_neighbors.contains(&key) {
            self.refused_neighbors.remove(&key);
            if !self.maps.set_neighbor(key.0, key.1, mac) {
                self.refused_neighbors.insert(key);
            }
            match mac {
                Some(mac) => self.neighbors.insert(key, mac),
                None => self.neighbors.remove(&key),
            };
        }
        self.follower.set_failed(Leg { interface: key.0, gateway: Some(key.1) }, is_failed);
    }

    /// Tries neighbours again that found no room.
    fn try_neighbors(&mut self) {
        for key in self.refused_neighbors.clone() {
            let mac = self.neighbors.get(&key).copied();
            if !self.maps.set_neighbor(key.0, key.1, mac) {
                break;
            }
            self.refused_neighbors.remove(&key);
        }
    }

    /// Takes the state of a device. Says whether the kernel has removed its routes without a word.
    fn set_device(&mut self, device: &Device) -> bool {
        let was_up = if device.is_up { !self.up.insert(device.index) } else { self.up.remove(&device.index) };
        self.follower.set_up(device.index, device.is_up);
        let link =
            Link { ifindex: device.index, mtu: device.mtu, forwards: forwards(&device.name), is_by_kernel: false };
        self.set_link(link);
        was_up && !device.is_up
    }

    /// Writes the devices of the router, which are the ports and their VLANs.
    fn set_ports(&mut self, ports: &[(Device, Urpf)], devices: &[Device]) {
        let is_port = |index: u32| ports.iter().any(|(port, _)| port.index == index);
        let of_router = devices
            .iter()
            .filter(|device| is_port(device.index) || device.vlan.is_some_and(|(parent, _)| is_port(parent)));
        self.ports = of_router.map(|device| (device.index, device.name.clone())).collect();
        self.ports.keys().filter_map(|index| self.links.get(index)).for_each(|link| write_link(&self.maps, link));
    }

    fn set_link(&mut self, mut link: Link) {
        link.is_by_kernel = self.is_by_kernel;
        if self.links.insert(link.ifindex, link) != Some(link) && self.ports.contains_key(&link.ifindex) {
            write_link(&self.maps, &link);
        }
    }

    /// `sysctl` sends no event, so the files are read.
    fn look_at_forwarding(&mut self) {
        for (index, name) in self.ports.clone() {
            if let Some(link) = self.links.get(&index).copied() {
                self.set_link(Link { forwards: forwards(&name), ..link });
            }
        }
    }

    /// Lists everything, and removes what is not there any more. After a list that was not whole, nothing is removed.
    fn list(&mut self, status: &mut FibStatus) -> Result<(), XdpError> {
        let mut todo = Todo::default();
        self.follower.begin();
        let mut neighbors = HashSet::new();
        for list in [List::Devices, List::Neighbors, List::Objects, List::Routes4, List::Routes6] {
            netlink::list(list, |event| match event {
                Event::Route { route, .. } => self.follower.list(route),
                Event::Neighbor(neighbor) => {
                    neighbors.insert((neighbor.device, neighbor.address));
                    self.set_neighbor(&neighbor, true);
                }
                event => self.take(event, &mut todo),
            })?;
        }
        self.follower.end();
        let gone: Vec<_> = self.neighbors.keys().filter(|key| !neighbors.contains(key)).copied().collect();
        for (device, address) in gone {
            self.set_neighbor(&Neighbor { address, device, mac: None, state: "failed", is_managed: false }, false);
        }
        status.listings += 1;
        Ok(())
    }

    /// Writes what has changed into the kernel.
    fn write(&mut self, status: &mut FibStatus) -> anyhow::Result<()> {
        self.follower.settle();
        self.maps.flush()?;
        let full = self.follower.full();
        let next = FibStatus {
            prefixes: self.follower.prefixes() as u64,
            refused: full.prefixes as u64,
            covering: full.covering as u64,
            ways: full.ways as u64,
            left_out: full.routes as u64,
            objects_left_out: full.objects as u64,
            neighbors: self.neighbors.len() as u64,
            neighbors_refused: self.refused_neighbors.len() as u64,
            written: self.maps.written(),
            ..*status
        };
        if next.refused > 0 && status.refused == 0 || next.ways > 0 && status.ways == 0 {
            note("the forwarding table is full: the kernel forwards what found no room; see `router show status`");
        }
        if (next.left_out > 0) != (status.left_out > 0) {
            note(if next.left_out > 0 {
                "the kernel has more routes than `routes` of [limits] lets this process keep: the kernel looks up"
            } else {
                "all routes have room again: the lookup fib goes on"
            });
        }
        *status = next;
        self.choose_lookup(status);
        self.maps.set_status(status).context("the status is not written")
    }
}

/// Writes a device. An entry that is not written leaves the packets of the device to the kernel.
fn write_link(maps: &FibMaps, link: &Link) {
    maps.set_link(link).unwrap_or_else(|error| note(&error.to_string()));
}

/// Writes the metrics each second. A file that cannot be written ends nothing.
#[derive(Debug, Default)]
struct MetricsWriter {
    /// The last attempt has failed, and that was said.
    is_failing: bool,
}

impl MetricsWriter {
    fn write(
        &mut self,
        router: &Router,
        config: &Config,
        devices: &[Device],
        status: &FibStatus,
    ) -> anyhow::Result<()> {
        let written = write_metrics(router, config, devices, status);
        let was_failing = std::mem::replace(&mut self.is_failing, written.is_err());
        match written {
            Err(error) if error.downcast_ref::<std::io::Error>().is_none() => Err(error),
            Err(error) if !was_failing => {
                note(&format!("{error:#}; the router goes on"));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Writes the metrics, in the text that Prometheus reads.
fn write_metrics(router: &Router, config: &Config, devices: &[Device], status: &FibStatus) -> anyhow::Result<()> {
    let Some(file) = &config.metrics else { return Ok(()) };
    let mut text = String::new();
    for (name, number) in status.numbers() {
        writeln!(text, "sallyport_packet_fib_{name} {number}")?;
    }
    for count in router.counts()? {
        let port = label(&count.ifindex.map(|index| name_of(devices, index)).unwrap_or_default());
        let (action, reason) = (count.reason.action().name(), count.reason.name());
        let labels = format!("{{port=\"{port}\",action=\"{action}\",reason=\"{reason}\"}}");
        writeln!(text, "sallyport_packet_packets_total{labels} {}", count.packets)?;
        writeln!(text, "sallyport_packet_bytes_total{labels} {}", count.bytes)?;
    }
    replace(file, &text)
}

/// The value of a label: a device can have quotes and backslashes in its name.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_quotes_is_one_label() {
        assert_eq!(label("eth1"), "eth1");
        assert_eq!(label("e\"th\\1"), "e\\\"th\\\\1");
    }
}
