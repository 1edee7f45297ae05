//! The plan of a topology: nodes with names and addresses, their programs, command lines and files. Pure.

use std::{
    fmt::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    anycast::{Internet, MAX_SITE_EDGES, Seat, SeatKind},
    topology::{Database, LabName, Link, Topology},
    wires::{Part, Port, Wires},
};

/// The domain of a laboratory's sockets; `.test` exists nowhere else (RFC 6761 section 6.2).
pub const DOMAIN: &str = "lab.test";
/// The device of each node.
pub(crate) const DEVICE: &str = "lab0";
/// The namespace of the program that carries packets.
const WIRES: &str = "wires";
/// How many NATS servers there are.
const BUS_NODES: u8 = 3;
const BUS_PORT: u16 = 4222;
const CLUSTER_PORT: u16 = 6222;
/// The monitoring port of NATS servers.
const MONITOR_PORT: u16 = 8222;
const DATABASE_PORT: u16 = 5432;
const EDGES_PORT: u16 = 8444;
const PUBLIC_PORT: u16 = 443;
/// The port of an origin's service, in its own namespace.
pub(crate) const SERVICE_PORT: u16 = 8000;

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An edge.
    Edge,
    /// A control.
    Control,
    /// A NATS server.
    Bus,
    /// The database.
    Database,
    /// A client.
    Client,
    /// A service, and the connector of its tunnel.
    Origin,
    /// A router of the internet.
    Router,
}

/// A namespace with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// Its region, as an index of the topology.
    pub region: usize,
    /// Its address, in the network of its region.
    pub address: Ipv4Addr,
}

/// The program of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// `sallyport edge`.
    Edge,
    /// `sallyport control`.
    Control,
    /// `nats-server`.
    Bus,
    /// `postgres`.
    Database,
    /// A small web service.
    Service,
    /// `sallyport tunnel connect`.
    Connector,
    /// `bird`.
    Router,
}

/// A process of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name, which is its node's if that has one process.
    pub name: String,
    /// The program.
    pub role: Role,
    /// The number of its node.
    pub node: usize,
}

/// The files of a laboratory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The directory of all files.
    pub root: PathBuf,
}

impl Paths {
    /// The data of a process.
    #[must_use]
    pub fn data(&self, process: &str) -> PathBuf {
        self.root.join("data").join(process)
    }

    /// The log of a process.
    #[must_use]
    pub fn log(&self, process: &str) -> PathBuf {
        self.root.join("logs").join(format!("{process}.log"))
    }

    /// The root certificate of the laboratory.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.root.join("ca.pem")
    }

    /// The home of the owner of the installation.
    #[must_use]
    pub fn owner(&self) -> PathBuf {
        self.root.join("owner")
    }

    /// The configuration of a BIRD.
    #[must_use]
    pub fn bird_config(&self, process: &str) -> PathBuf {
        self.data(process).join("bird.conf")
    }

    /// The control socket of a BIRD.
    #[must_use]
    pub fn bird_socket(&self, process: &str) -> PathBuf {
        self.data(process).join("bird.ctl")
    }

    /// The part of an edge's configuration of BIRD that the edge writes.
    #[must_use]
    pub fn announcements(&self, process: &str) -> PathBuf {
        self.data(process).join("sallyport.conf")
    }

    /// Who is whose customer in the internet of an anycast laboratory.
    #[must_use]
    pub fn relations(&self) -> PathBuf {
        self.root.join("as-relations.txt")
    }

    /// The socket of the program that carries packets.
    #[must_use]
    pub fn orders(&self) -> PathBuf {
        self.root.join("wires.sock")
    }
}

/// The programs of a laboratory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// This program, for the wires, the services of origins, and measurements.
    pub lab: PathBuf,
    /// The program of controls, edges and connectors: the installed `sallyport`, or another version.
    pub sallyport: PathBuf,
    /// `nats-server`.
    pub nats_server: PathBuf,
    /// The folder of `initdb` and `postgres`, if there is a PostgreSQL.
    pub postgres: Option<PathBuf>,
}

/// Values that are known only when others run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// The password of the account that owns the installation.
    pub password: String,
    /// The id of the socket that all regions serve.
    pub socket: String,
    /// Its name under [`DOMAIN`].
    pub host: String,
    /// The tunnel of each region's origin, and its credential; of each edge in an anycast laboratory.
    pub tunnels: Vec<(String, String)>,
}

/// How to start a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additional environment.
    pub env: Vec<(String, String)>,
    /// Whether it must not run as root: it runs as the user `postgres`, in an IPC namespace that ends with it.
    pub as_postgres: bool,
    /// The text in its log at which the program is ready.
    pub ready: &'static str,
}

/// The plan of a topology.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The topology.
    pub topology: Topology,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All processes, in the order in which they start.
    pub processes: Vec<Process>,
    /// The internet of an anycast laboratory.
    pub internet: Option<Internet>,
}

impl Plan {
    /// The plan of a topology.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let internet = topology.anycast.clone().map(Internet::new);
        let mut plan = Self { topology, nodes: Vec::new(), processes: Vec::new(), internet };
        if plan.internet.is_some() {
            plan.add_internet();
            return plan;
        }
        let count = plan.topology.regions.len();
        for number in 0..BUS_NODES {
            plan.add(format!("nats-{}", number + 1), Kind::Bus, usize::from(number) % count, 41 + number, Role::Bus);
        }
        if plan.topology.database == Database::Postgres {
            plan.add("postgres".to_owned(), Kind::Database, 0, 51, Role::Database);
        }
        for number in 0..plan.topology.controls {
            let region = usize::from(number) % count;
            plan.add(format!("control-{}", number + 1), Kind::Control, region, 31 + number, Role::Control);
        }
        let regions: Vec<String> = plan.topology.regions.iter().map(ToString::to_string).collect();
        for (region, name) in regions.iter().enumerate() {
            for number in 0..plan.topology.edges {
                plan.add(format!("{name}-{}", number + 1), Kind::Edge, region, 11 + number, Role::Edge);
            }
        }
        for (region, name) in regions.iter().enumerate() {
            let node = plan.add(format!("{name}-origin"), Kind::Origin, region, 111, Role::Service);
            plan.processes.push(Process { name: format!("{name}-connector"), role: Role::Connector, node });
            plan.nodes.push(Node {
                name: format!("{name}-client"),
                kind: Kind::Client,
                region,
                address: address(region, 101),
            });
        }
        plan
    }

    /// The nodes and processes of an anycast laboratory.
    fn add_internet(&mut self) {
        let seats = self.internet.as_ref().map(Internet::seats).unwrap_or_default();
        for seat in &seats {
            let name = seat.name.clone();
            let own = |suffix: &str| format!("{name}{suffix}");
            let (kind, processes) = match seat.kind {
                SeatKind::Network(_) if name.ends_with("-client") => (Kind::Client, vec![(own("-bird"), Role::Router)]),
                SeatKind::Network(_) => (Kind::Router, vec![(own(""), Role::Router)]),
                SeatKind::Edge(_) => {
                    let others = vec![(own("-bird"), Role::Router), (own(""), Role::Edge)];
                    (Kind::Edge, [others, vec![(own("-connector"), Role::Connector)]].concat())
                }
                SeatKind::Origin => (Kind::Origin, vec![(own(""), Role::Service)]),
                SeatKind::Control => (Kind::Control, vec![(own(""), Role::Control)]),
                SeatKind::Bus => (Kind::Bus, vec![(own(""), Role::Bus)]),
            };
            let node = self.nodes.len();
            self.nodes.push(Node { name: name.clone(), kind, region: seat.site, address: seat.address });
            self.processes.extend(processes.into_iter().map(|(name, role)| Process { name, role, node }));
        }
    }

    /// The internet with the seat of a node; `None` if this is no anycast laboratory.
    pub(crate) fn seat(&self, node: &Node) -> Option<(&Internet, Seat)> {
        let internet = self.internet.as_ref()?;
        Some((internet, internet.seats().into_iter().find(|seat| seat.name == node.name)?))
    }

    fn add(&mut self, name: String, kind: Kind, region: usize, last: u8, role: Role) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node { name: name.clone(), kind, region, address: address(region, last) });
        self.processes.push(Process { name, role, node });
        node
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The process of this name, or all of the node of this name.
    #[must_use]
    pub fn processes_of(&self, name: &str) -> Vec<&Process> {
        let own: Vec<_> = self.processes.iter().filter(|process| process.name == name).collect();
        let of_node: Vec<_> = self.processes.iter().filter(|process| self.nodes[process.node].name == name).collect();
        if of_node.len() > own.len() { of_node } else { own }
    }

    /// The node or the region of this name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<Part> {
        let node = self.nodes.iter().position(|node| node.name == name).map(Part::Node);
        node.or_else(|| self.topology.regions.iter().position(|region| region.as_str() == name).map(Part::Region))
    }

    /// The name of a part.
    #[must_use]
    pub fn name_of(&self, part: Part) -> String {
        match part {
            Part::Node(number) => self.nodes.get(number).map_or_else(String::new, |node| node.name.clone()),
            Part::Region(number) => self.topology.regions.get(number).map_or_else(String::new, ToString::to_string),
        }
    }

    /// All names of possible targets of faults.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let nodes = self.nodes.iter().map(|node| node.name.clone());
        let others = self.processes.iter().map(|process| process.name.clone());
        let regions = self.topology.regions.iter().map(ToString::to_string);
        let mut names: Vec<_> = nodes.chain(others).chain(regions).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The client of a region.
    #[must_use]
    pub fn client(&self, region: usize) -> Option<&Node> {
        self.nodes.iter().find(|node| node.kind == Kind::Client && node.region == region)
    }

    /// The prefix of its namespaces.
    #[must_use]
    pub fn prefix(&self) -> String {
        prefix(&self.topology.name)
    }

    /// The namespace of a node.
    #[must_use]
    pub fn namespace(&self, node: &Node) -> String {
        format!("{}{}", self.prefix(), node.name)
    }

    /// The namespace of the program that carries packets.
    #[must_use]
    pub fn namespace_of_wires(&self) -> String {
        format!("{}{WIRES}", self.prefix())
    }

    /// The ports of the wires: a node each, or both ends of each link of an internet.
    fn ports(&self) -> Vec<Port> {
        let port = |(number, node): (usize, &Node)| Port {
            number,
            node: node.name.clone(),
            region: node.region,
            address: node.address,
        };
        match &self.internet {
            None => self.nodes.iter().enumerate().map(port).collect(),
            // The nodes of networks are the first, in their order.
            Some(internet) => {
                let ends = internet.cables().into_iter().flatten();
                ends.map(|end| port((end.network, &self.nodes[end.network]))).collect()
            }
        }
    }

    /// The wires: between all nodes, or those of an internet's links.
    #[must_use]
    pub fn wires(&self, seed: u64) -> Wires {
        let (topology, ports) = (self.topology.clone(), self.ports());
        let Some(internet) = &self.internet else { return Wires::new(topology, ports, seed) };
        let ends = internet.links.iter().enumerate().flat_map(|(number, link)| {
            let wire = Link { delay: link.delay, ..Link::default() };
            [(2 * number + 1, wire), (2 * number, wire)]
        });
        Wires::of_links(topology, ports, ends.collect(), seed)
    }

    /// The devices of the wires, one for each port: the namespace and the name.
    #[must_use]
    pub fn devices(&self) -> Vec<(String, String)> {
        match &self.internet {
            None => self.nodes.iter().map(|node| (self.namespace(node), DEVICE.to_owned())).collect(),
            Some(internet) => {
                let ends = internet.cables().into_iter().flatten();
                ends.map(|end| (self.namespace(&self.nodes[end.network]), end.device)).collect()
            }
        }
    }

    /// The lines for a node's `ip -batch` once its device exists.
    #[must_use]
    pub fn set_up(&self, node: &Node) -> String {
        if let Some((internet, seat)) = self.seat(node) {
            return internet.set_up(&seat);
        }
        format!(
            "link set lo up\naddr add {}/24 dev {DEVICE}\nlink set {DEVICE} up txqueuelen 4000\n\
             route add default dev {DEVICE}\n",
            node.address
        )
    }

    /// The hosts file of a node: the names of nodes, and the sockets' names at edges, the nearest first. On an edge and
    /// on a control the sockets' names lead to itself.
    #[must_use]
    pub fn hosts(&self, node: &Node, sockets: &[String]) -> String {
        let names = ["api", "login", "desk", "tunnel"].iter().map(|name| format!("{name}.{DOMAIN}"));
        if let Some((internet, seat)) = self.seat(node) {
            return internet.hosts(&seat, &names.chain(sockets.iter().cloned()).collect::<Vec<_>>());
        }
        let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        for other in &self.nodes {
            let _ = writeln!(text, "{} {}", other.address, other.name);
        }
        let mut edges: Vec<&Node> = self.of(Kind::Edge).collect();
        edges.sort_by_key(|edge| (self.topology.link(node.region, edge.region).delay, edge.address));
        let addresses: Vec<Ipv4Addr> = match node.kind {
            Kind::Control => vec![node.address],
            // From its own machine, the edge shows its metrics.
            Kind::Edge => vec![Ipv4Addr::LOCALHOST],
            _ => edges.iter().map(|edge| edge.address).collect(),
        };
        for name in names.chain(sockets.iter().cloned()) {
            for address in &addresses {
                let _ = writeln!(text, "{address} {name}");
            }
        }
        text
    }

    /// The configuration of a NATS server.
    #[must_use]
    pub fn bus_config(&self, node: &Node, places: &Paths) -> String {
        let cluster = match self.of(Kind::Bus).count() {
            0 | 1 => String::new(),
            _ => self.bus_cluster(node),
        };
        format!(
            "server_name: {name}\nlisten: \"{address}:{BUS_PORT}\"\nhttp: \"{address}:{MONITOR_PORT}\"\n\
             jetstream {{ store_dir: {store:?}, max_mem: 64M, max_file: 1G }}\n{cluster}",
            name = node.name,
            address = node.address,
            store = places.data(&node.name).join("store"),
        )
    }

    fn bus_cluster(&self, node: &Node) -> String {
        let routes: Vec<_> =
            self.of(Kind::Bus).map(|other| format!("\"nats://{}:{CLUSTER_PORT}\"", other.address)).collect();
        format!(
            "cluster {{ name: lab, listen: \"{}:{CLUSTER_PORT}\", routes: [{}] }}\n",
            node.address,
            routes.join(", "),
        )
    }

    /// The `pg_hba.conf` of the database: the laboratory may connect.
    #[must_use]
    pub fn database_access(&self) -> String {
        "host all all 10.77.0.0/16 trust\n".to_owned()
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.kind == kind)
    }

    /// How to start a process.
    #[must_use]
    pub fn launch(&self, process: &Process, programs: &Programs, places: &Paths, secrets: &Secrets) -> Launch {
        let node = &self.nodes[process.node];
        let data = places.data(&process.name);
        let text = |path: &Path| path.display().to_string();
        let sallyport = |args: Vec<String>, env: Vec<(String, String)>, ready| Launch {
            program: programs.sallyport.clone(),
            args,
            env,
            as_postgres: false,
            ready,
        };
        match process.role {
            Role::Bus => Launch {
                program: programs.nats_server.clone(),
                args: vec!["-c".to_owned(), text(&data.join("nats.conf"))],
                env: Vec::new(),
                as_postgres: false,
                ready: "Server is ready",
            },
            Role::Database => Launch {
                program: programs.postgres.clone().unwrap_or_default().join("postgres"),
                args: database_args(node, &data),
                env: Vec::new(),
                as_postgres: true,
                ready: "database system is ready to accept connections",
            },
            Role::Control => sallyport(self.control_args(node, places), Vec::new(), ": ready "),
            Role::Edge => {
                let address = format!("{}:{PUBLIC_PORT}", node.address);
                let args = words("edge --drain 10s").into_iter();
                let args = args.chain(["--listen".into(), format!(":{PUBLIC_PORT}"), "--advertise".into(), address]);
                let args = args.chain(["--data".into(), text(&data)]);
                let args = args.chain(self.announce_args(process, places));
                sallyport(args.collect(), Vec::new(), ": ready ")
            }
            Role::Service => {
                let mut args = words("service --called");
                args.extend([node.name.clone(), "--listen".into(), format!("{}:{SERVICE_PORT}", self.service(node))]);
                Launch { program: programs.lab.clone(), ..sallyport(args, Vec::new(), "ready") }
            }
            Role::Connector => {
                let (tunnel, credential) = secrets.tunnels.get(self.slot(process)).cloned().unwrap_or_default();
                let mut args = words("tunnel connect --host");
                args.extend([self.service(node).to_string(), "-o".into(), "json".into()]);
                if self.internet.is_some() {
                    // Each edge has a connector beside it.
                    args.extend(words("--redundancy 1"));
                }
                args.push("--socket-id".into());
                args.extend([secrets.socket.clone(), "--port".into(), SERVICE_PORT.to_string()]);
                args.extend(["--tunnel-id".into(), tunnel]);
                let mut env = self.environment(places);
                env.push(("SALLYPORT_TUNNEL_CREDENTIAL".into(), credential));
                sallyport(args, env, "attached")
            }
            Role::Router => Launch {
                program: "bird".into(),
                args: vec![
                    "-f".to_owned(),
                    "-c".into(),
                    text(&places.bird_config(&process.name)),
                    "-s".into(),
                    text(&places.bird_socket(&process.name)),
                ],
                ..sallyport(Vec::new(), Vec::new(), "Started")
            },
        }
    }

    /// The address of the service that connectors of this node lead to.
    fn service(&self, node: &Node) -> Ipv4Addr {
        let origin = self.of(Kind::Origin).find(|origin| origin.region == node.region);
        match (&self.internet, origin) {
            (Some(_), Some(origin)) => origin.address,
            _ => Ipv4Addr::LOCALHOST,
        }
    }

    /// The place of a connector's tunnel among all tunnels.
    pub(crate) fn slot(&self, process: &Process) -> usize {
        let node = &self.nodes[process.node];
        match self.seat(node) {
            Some((_, Seat { kind: SeatKind::Edge(edge), site, .. })) => {
                site * usize::from(MAX_SITE_EDGES) + usize::from(edge.saturating_sub(1))
            }
            _ => node.region,
        }
    }

    /// The options by which an edge announces the anycast addresses.
    fn announce_args(&self, process: &Process, places: &Paths) -> Vec<String> {
        if self.internet.is_none() {
            return Vec::new();
        }
        let bird = format!("{}-bird", process.name);
        let mut args = vec!["--bird".to_owned(), places.bird_socket(&bird).display().to_string()];
        args.extend(["--bird-config".into(), places.announcements(&bird).display().to_string()]);
        args.extend(self.allow_args());
        args
    }

    /// The prefixes that control and edges accept.
    fn allow_args(&self) -> Vec<String> {
        let prefixes = self.internet.iter().flat_map(|_| Internet::prefixes());
        prefixes.flat_map(|(net, _)| ["--anycast-allow".to_owned(), net]).collect()
    }

    fn control_args(&self, node: &Node, places: &Paths) -> Vec<String> {
        // The nearest first.
        let mut bus: Vec<_> = self.of(Kind::Bus).collect();
        bus.sort_by_key(|other| (self.topology.link(node.region, other.region).delay, other.address));
        let bus: Vec<_> = bus.iter().map(|other| format!("nats://{}:{BUS_PORT}", other.address)).collect();
        let mut args = words("control --domain");
        args.extend([DOMAIN.to_owned(), "--data".into(), places.data(&node.name).display().to_string()]);
        args.extend(["--bus".into(), bus.join(","), "--bus-replicas".into(), bus.len().to_string()]);
        args.extend(["--listen".into(), format!("{}:{PUBLIC_PORT}", node.address)]);
        args.extend(["--listen-edges".into(), format!("{}:{EDGES_PORT}", node.address)]);
        args.extend(["--advertise".into(), format!("{}:{EDGES_PORT}", node.address)]);
        args.extend(self.allow_args());
        if let Some(database) = self.of(Kind::Database).next() {
            let address = format!("postgres://postgres@{}:{DATABASE_PORT}/postgres?sslmode=disable", database.address);
            args.extend(["--database".into(), address]);
            // The first one makes the key of the installation; the others get it.
            if let Some(first) = self.of(Kind::Control).next().filter(|first| first.name != node.name) {
                let key = places.data(&first.name).join("installation.key");
                args.extend(["--key-file".into(), key.display().to_string()]);
            }
        }
        args
    }

    /// The environment of programs on nodes, with the API, the root and the owner.
    #[must_use]
    pub fn environment(&self, places: &Paths) -> Vec<(String, String)> {
        let (ca, owner) = (places.ca().display().to_string(), places.owner());
        let pairs = [
            ("SALLYPORT_API", format!("https://api.{DOMAIN}")),
            ("SALLYPORT_CA", ca.clone()),
            ("CURL_CA_BUNDLE", ca.clone()),
            ("SSL_CERT_FILE", ca),
            ("XDG_CONFIG_HOME", owner.join("config").display().to_string()),
            ("SALLYPORT_STATE_DIR", owner.join("state").display().to_string()),
            ("SALLYPORT_PROXY", "none".to_owned()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The prefix of a laboratory's namespaces.
pub(crate) fn prefix(name: &LabName) -> String {
    format!("sallyport-{name}-")
}

fn address(region: usize, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, u8::try_from(region + 1).unwrap_or(u8::MAX), last)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Without sync, because a crash of the machine ends the laboratory; without shared memory that outlives the server.
fn database_args(node: &Node, data: &Path) -> Vec<String> {
    let mut args = vec!["-D".to_owned(), data.display().to_string(), "-p".into(), DATABASE_PORT.to_string()];
    let settings = [
        format!("listen_addresses={}", node.address),
        "unix_socket_directories=".to_owned(),
        "fsync=off".to_owned(),
        "full_page_writes=off".to_owned(),
        "shared_buffers=32MB".to_owned(),
        "max_connections=100".to_owned(),
        "dynamic_shared_memory_type=mmap".to_owned(),
    ];
    args.extend(settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]));
    args
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
