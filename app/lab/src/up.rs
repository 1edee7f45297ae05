//! Builds a laboratory, and removes it.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    error::LabError,
    kernel,
    plan::{Kind, Launch, Paths, Plan, Process, Role, Secrets, prefix},
    process::{self, Life},
    programs,
    start::{self, Starting},
    state::{self, Lab, State},
    topology::{Database, LabName, Topology},
};

/// How long killed processes may take to end.
pub(crate) const END_TIME: Duration = Duration::from_secs(20);
/// How long a NATS server may take to join the cluster.
const CLUSTER_TIME: Duration = Duration::from_secs(60);
/// The address of the account that owns the installation.
pub const OWNER: &str = "owner@lab.test";
/// What a NATS server logs when its cluster has a leader.
pub(crate) const LEADER: &str = "JetStream cluster new metadata leader";

/// Builds a laboratory. `program` replaces the installed `sallyport` for controls, edges and connectors. Calls `tell`
/// at the start of each step.
///
/// # Errors
/// Why it could not be built. The finished part stays for inspection; [`down`] removes it.
pub fn up(
    parent: &Path,
    topology: Topology,
    program: Option<&Path>,
    tell: &mut dyn FnMut(&str),
) -> Result<Lab, LabError> {
    if !kernel::is_root() {
        return Err(LabError::NotRoot);
    }
    let name = topology.name.clone();
    let places = state::places(parent, &name);
    if places.root.exists() || !kernel::namespaces(&prefix(&name)).is_empty() {
        let is_whole = state::read(&places).ok().flatten().is_some_and(|state| state.is_whole);
        return Err(LabError::AlreadyExists { name, is_whole });
    }
    let programs = programs::find(topology.database, program)?;
    if topology.anycast.is_some() {
        programs::find_for_anycast()?;
    }
    let held = state::create(parent, &name)?;
    let plan = Plan::new(topology.clone());
    let state = State::new(topology, programs);
    let mut lab = Lab { places, state, plan, secrets: Secrets::default(), _lock: Some(held) };
    lab.write()?;
    tell(&match &lab.plan.internet {
        Some(internet) => format!(
            "internet: {} networks with {} links, and {} nodes in all",
            internet.networks.len(),
            internet.links.len(),
            lab.plan.nodes.len()
        ),
        None => format!("network: {} nodes in {} regions", lab.plan.nodes.len(), lab.plan.topology.regions.len()),
    });
    lab.build_network(parent)?;
    if lab.plan.internet.is_some() {
        tell("routers: a BIRD in each network");
        lab.start_routers()?;
    }
    tell(match (lab.plan.topology.database, &lab.plan.internet) {
        (_, Some(_)) => "bus: NATS with JetStream",
        (Database::Postgres, _) => "bus and database: three machines of NATS with JetStream, and PostgreSQL",
        (Database::Sqlite, _) => "bus: three machines of NATS with JetStream",
    });
    lab.start_bus_and_database()?;
    tell("control: accounts, sockets and edges");
    lab.start_first_control()?;
    tell("edges: each joins by a token of its own");
    lab.start_others()?;
    if lab.plan.internet.is_some() {
        tell("announcements: prefixes and neighbours, told to control");
        lab.announce()?;
    }
    tell("origins: a web service in each region, and its tunnel");
    lab.start_origins()?;
    lab.state.is_whole = true;
    lab.write()?;
    if lab.plan.internet.is_some() {
        tell("routes: every edge's at its site's router, and the same paths from all clients for a while");
        lab.wait_for_all_routes()?;
        lab.wait_for_paths()?;
    }
    tell("a request from each region");
    lab.verify_regions()?;
    Ok(lab)
}

/// Removes a laboratory, complete or not. Returns `false` if there was nothing.
///
/// # Errors
/// Another command works on it, or the system refuses.
pub fn down(parent: &Path, name: &LabName) -> Result<bool, LabError> {
    if !kernel::is_root() {
        return Err(LabError::NotRoot);
    }
    let namespaces = kernel::namespaces(&prefix(name));
    let held = match state::open(parent, name) {
        Ok(held) => Some(held),
        Err(LabError::None(_)) if namespaces.is_empty() => return Ok(false),
        Err(LabError::None(_)) => None,
        Err(error) => return Err(error),
    };
    // All processes in its namespaces belong to it, whoever started them.
    let began = Instant::now();
    loop {
        let inside = namespaces.iter().flat_map(|namespace| process::in_namespace(&kernel::path(namespace)));
        let alive: Vec<_> = inside.filter(|process| process.life() != Life::Gone).collect();
        if alive.is_empty() {
            break;
        }
        if began.elapsed() > END_TIME {
            let pids: Vec<_> = alive.iter().map(|process| process.pid.to_string()).collect();
            let what = format!("the end of the processes {}", pids.join(", "));
            return Err(LabError::Late { what, seconds: END_TIME.as_secs(), seen: String::new() });
        }
        for process in alive {
            process.signal(Signal::KILL).map_err(LabError::io(format!("end the process {}", process.pid)))?;
        }
        thread::sleep(Duration::from_millis(20));
    }
    namespaces.iter().try_for_each(|namespace| kernel::remove(namespace))?;
    kernel::remove_files(&prefix(name))?;
    if let Some(held) = held {
        let root = &held.places.root;
        fs::remove_dir_all(root).map_err(LabError::io(format!("remove {}", root.display())))?;
    }
    // Fails while other laboratories exist.
    drop(fs::remove_dir(parent));
    Ok(true)
}

/// The existing laboratories, complete or not.
#[must_use]
pub fn all(parent: &Path) -> Vec<(LabName, bool)> {
    let names = fs::read_dir(parent).into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<LabName>().ok());
    let mut all: Vec<_> = names
        .map(|name| {
            let state = state::read(&state::places(parent, &name)).ok().flatten();
            let is_whole = state.is_some_and(|state| state.is_whole);
            (name, is_whole)
        })
        .collect();
    all.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    all
}

impl Lab {
    fn build_network(&mut self, parent: &Path) -> Result<(), LabError> {
        let wires = self.plan.namespace_of_wires();
        kernel::add(&wires)?;
        for node in &self.plan.nodes {
            let namespace = self.plan.namespace(node);
            kernel::add(&namespace)?;
            kernel::write_hosts(&namespace, &self.plan.hosts(node, &[]))?;
        }
        self.prepare_kernels()?;
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut args = text(&["wires", "--lab", self.plan.topology.name.as_str(), "--dir"]);
        args.push(parent.display().to_string());
        let program = self.state.programs.lab.clone();
        let launch = Launch { program, args, env: Vec::new(), as_postgres: false, ready: "ready" };
        let command = start::command(&wires, &launch);
        let starting = start::spawn("the wires", command, self.places.log("wires"), &self.places.root, launch.ready)?;
        self.state.wires = Some(starting.started());
        self.write()?;
        starting.wait()?;
        let set_up = |node| kernel::batch(&self.plan.namespace(node), &self.plan.set_up(node));
        self.plan.nodes.iter().try_for_each(set_up)?;
        self.connect_seats()
    }

    fn start_bus_and_database(&mut self) -> Result<(), LabError> {
        let mut bus = Vec::new();
        for process in self.of(Role::Bus) {
            let data = self.make_data(&process)?;
            let config = self.plan.bus_config(&self.plan.nodes[process.node], &self.places);
            let file = data.join("nats.conf");
            fs::write(&file, config).map_err(LabError::io(format!("write {}", file.display())))?;
            bus.push(self.start(&process, &[])?);
        }
        for process in self.of(Role::Database) {
            self.make_database(&process)?;
            self.start(&process, &[])?.wait()?;
        }
        bus.iter().try_for_each(Starting::wait)?;
        if bus.len() == 1 {
            return Ok(());
        }
        let began = Instant::now();
        while !bus.iter().any(|starting| starting.has_logged(LEADER)) {
            if began.elapsed() > CLUSTER_TIME {
                let what = "a leader of the bus".to_owned();
                return Err(LabError::Late { what, seconds: CLUSTER_TIME.as_secs(), seen: String::new() });
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(crate) fn make_data(&self, process: &Process) -> Result<std::path::PathBuf, LabError> {
        let data = self.places.data(&process.name);
        fs::create_dir_all(&data).map_err(LabError::io(format!("make {}", data.display())))?;
        Ok(data)
    }

    fn make_database(&self, process: &Process) -> Result<(), LabError> {
        let data = self.make_data(process)?;
        kernel::run(Command::new("chown").arg("postgres:").arg(&data), "")?;
        let folder = self.state.programs.postgres.clone().unwrap_or_default();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(folder.join("initdb"));
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        command.arg("-D").arg(&data).current_dir("/");
        start::clean(&mut command);
        kernel::run(&mut command, "")?;
        let file = data.join("pg_hba.conf");
        fs::write(&file, self.plan.database_access()).map_err(LabError::io(format!("write {}", file.display())))
    }

    fn start_first_control(&mut self) -> Result<(), LabError> {
        let first = self.of(Role::Control).swap_remove(0);
        self.make_data(&first)?;
        self.start(&first, &[])?.wait()?;
        let from = self.places.data(&first.name).join("ca.pem");
        fs::copy(&from, self.places.ca()).map_err(LabError::io(format!("copy {}", from.display())))?;
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(|error| LabError::Unfit(format!("there is no randomness: {error}")))?;
        self.secrets.password = random.iter().map(|byte| format!("{byte:02x}")).collect();
        state::write_secrets(&self.places, &self.secrets)?;
        let token = self.places.data(&first.name).join("setup-token");
        let token = fs::read_to_string(&token).map_err(LabError::io(format!("read {}", token.display())))?;
        let create = ["account", "create", "--name", "Owner", "--email", OWNER, "--setup-token", token.trim()];
        self.as_owner(&create)?;
        self.as_owner(&["login", "--email", OWNER]).map(drop)
    }

    /// Starts the other controls, which need the key of the first one, and the edges, which need join tokens.
    fn start_others(&mut self) -> Result<(), LabError> {
        let controls = self.of(Role::Control);
        let mut starting = Vec::new();
        for process in &controls[1..] {
            self.make_data(process)?;
            starting.push(self.start(process, &[])?);
        }
        for process in self.of(Role::Edge) {
            starting.push(self.start_edge(&process)?);
        }
        starting.iter().try_for_each(Starting::wait)
    }

    /// Starts an edge that has not joined, by a token of its own.
    pub(crate) fn start_edge(&mut self, process: &Process) -> Result<Starting, LabError> {
        self.make_data(process)?;
        let region = self.plan.topology.regions[self.plan.nodes[process.node].region].to_string();
        let made = self.as_owner(&["edge", "token", "create", "--name", &process.name, "--region", &region])?;
        let token = text(&made, "token")?;
        self.start(process, &[("SALLYPORT_JOIN".to_owned(), token)])
    }

    fn start_origins(&mut self) -> Result<(), LabError> {
        let socket = self.as_owner(&["socket", "create", "--name", "lab", "--type", "http"])?;
        self.secrets.socket = text(&socket, "id")?;
        self.secrets.host = text(&socket, "dns_name")?;
        for connector in self.of(Role::Connector) {
            self.make_tunnel(&connector)?;
        }
        self.state.names = vec![self.secrets.host.clone()];
        self.write_names()?;
        let mut starting = Vec::new();
        for process in [self.of(Role::Service), self.of(Role::Connector)].concat() {
            self.make_data(&process)?;
            starting.push(self.start(&process, &[])?);
        }
        starting.iter().try_for_each(Starting::wait)
    }

    /// Makes the tunnel of a connector.
    pub(crate) fn make_tunnel(&mut self, connector: &Process) -> Result<(), LabError> {
        let made = self.as_owner(&["tunnel", "create", &self.secrets.socket])?;
        let credential = (text(&made, "id")?, text(&made, "credential")?);
        let slot = self.plan.slot(connector);
        if self.secrets.tunnels.len() <= slot {
            self.secrets.tunnels.resize(slot + 1, Default::default());
        }
        self.secrets.tunnels[slot] = credential;
        state::write_secrets(&self.places, &self.secrets)
    }

    pub(crate) fn write_names(&self) -> Result<(), LabError> {
        self.plan.nodes.iter().try_for_each(|node| {
            kernel::write_hosts(&self.plan.namespace(node), &self.plan.hosts(node, &self.state.names))
        })
    }

    /// A request from each region, repeated until it succeeds.
    fn verify_regions(&self) -> Result<(), LabError> {
        for region in 0..self.plan.topology.regions.len() {
            let Some(client) = self.plan.client(region) else { continue };
            let began = Instant::now();
            let url = format!("https://{}/", self.secrets.host);
            loop {
                let args = ["load", "--here", &url, "--requests", "1", "-o", "json"];
                let seen = match self.on(&client.name, &self.state.programs.lab, &args) {
                    Ok(report) if report["ok"].as_u64() == Some(1) => break,
                    Ok(report) => report["told"].to_string(),
                    Err(error) => error.to_string(),
                };
                if began.elapsed() > CLUSTER_TIME {
                    let what = format!("an answer of {url} at {}", client.name);
                    return Err(LabError::Late { what, seconds: CLUSTER_TIME.as_secs(), seen });
                }
                thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }

    pub(crate) fn of(&self, role: Role) -> Vec<Process> {
        self.plan.processes.iter().filter(|process| process.role == role).cloned().collect()
    }

    /// Runs a command of Sallyport as the owner of the installation, at the first control.
    pub(crate) fn as_owner(&self, args: &[&str]) -> Result<Value, LabError> {
        let node = self.plan.nodes.iter().find(|node| node.kind == Kind::Control).map(|node| node.name.clone());
        self.as_owner_at(&node.unwrap_or_default(), args)
    }

    fn as_owner_at(&self, node: &str, args: &[&str]) -> Result<Value, LabError> {
        let with_format: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        self.on(node, &self.state.programs.sallyport, &with_format)
    }

    /// Runs a program on a node as the owner, and parses its JSON output; `Null` without output.
    pub(crate) fn on(&self, node: &str, program: &Path, args: &[&str]) -> Result<Value, LabError> {
        let node = self.plan.node(node).ok_or_else(|| self.no_such(node))?;
        let mut command = kernel::inside(&self.plan.namespace(node), program);
        start::clean(&mut command);
        command.args(args).envs(self.plan.environment(&self.places));
        command.env("HOME", self.places.owner()).env("SALLYPORT_PASSWORD", &self.secrets.password);
        let output = kernel::run(&mut command, "")?;
        Ok(serde_json::from_str(&output).unwrap_or(Value::Null))
    }

    /// The command that runs a program on a node, with an environment that has the API and the root.
    ///
    /// # Errors
    /// There is no such node.
    pub fn command_on(&self, node: &str, program: &str) -> Result<Command, LabError> {
        let node = self.plan.node(node).ok_or_else(|| LabError::NoSuch {
            name: node.to_owned(),
            known: self.plan.nodes.iter().map(|node| node.name.clone()).collect(),
        })?;
        let mut command = kernel::inside(&self.plan.namespace(node), Path::new(program));
        start::clean(&mut command);
        command.envs(self.plan.environment(&self.places));
        // Puts the laboratory's own `sallyport` first.
        let own = self.state.programs.sallyport.parent().map(|folder| folder.display().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", own.unwrap_or_default()));
        Ok(command)
    }

    /// Writes the names of all the owner's sockets into the nodes' hosts files. Returns the names.
    ///
    /// # Errors
    /// The API does not answer.
    pub fn learn_names(&mut self) -> Result<Vec<String>, LabError> {
        // Tries every control, and every client's edge.
        let nodes = self.plan.nodes.iter().filter(|node| matches!(node.kind, Kind::Control | Kind::Client));
        let mut asked = nodes.map(|node| self.as_owner_at(&node.name, &["socket", "ls"]));
        let first = asked.next().unwrap_or_else(|| Err(self.no_such("control-1")));
        let sockets = first.or_else(|error| asked.find_map(Result::ok).ok_or(error))?;
        let names = sockets.as_array().into_iter().flatten();
        self.state.names = names.filter_map(|socket| Some(socket["dns_name"].as_str()?.to_owned())).collect();
        self.write_names()?;
        self.write()?;
        Ok(self.state.names.clone())
    }
}

fn text(value: &Value, field: &str) -> Result<String, LabError> {
    let found = value[field].as_str().map(str::to_owned);
    found.ok_or_else(|| LabError::Unfit(format!("there is no {field:?} in what the API answered")))
}

/// The files of the laboratory with this name.
#[must_use]
pub fn places_of(parent: &Path, name: &LabName) -> Paths {
    state::places(parent, name)
}
