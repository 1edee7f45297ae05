//! Builds the internet of an anycast laboratory, and tries what happens to its clients.

mod ask;
mod drill;
mod grow;
mod landing;

use std::fs;

use crate::{
    anycast::{Internet, Neighbour, NetworkKind, Seat, SeatKind},
    error::LabError,
    kernel,
    plan::{Process, Role},
    start::Starting,
    state::Lab,
};

pub use self::{
    ask::{AskOptions, Asked, MAX_ASK_RATE, run as run_ask},
    drill::{Drill, DrillReport},
    grow::GrowReport,
    landing::{Family, Landing},
};

impl Lab {
    /// The internet.
    ///
    /// # Errors
    /// This is no anycast laboratory.
    pub fn internet(&self) -> Result<&Internet, LabError> {
        let internet = self.plan.internet.as_ref();
        internet.ok_or_else(|| LabError::Unfit("this laboratory has no anycast: it was built without --anycast".into()))
    }

    fn seats(&self) -> Vec<Seat> {
        self.plan.internet.as_ref().map(Internet::seats).unwrap_or_default()
    }

    fn space(&self, name: &str) -> String {
        format!("{}{name}", self.plan.prefix())
    }

    /// Makes kernels routers, and connects nodes without a delay. Does nothing without an internet.
    pub(crate) fn prepare_kernels(&self) -> Result<(), LabError> {
        let Some(internet) = &self.plan.internet else { return Ok(()) };
        let switch = self.plan.namespace_of_wires();
        kernel::shell(&switch, "echo 1 >/proc/sys/net/ipv4/ip_forward\n")?;
        let mut lines = String::new();
        for seat in self.seats() {
            kernel::shell(&self.space(&seat.name), &internet.kernel_settings(&seat))?;
            lines += &internet.wire(&seat, &switch, &|name| self.space(name));
        }
        kernel::batch_among(&lines)
    }

    /// Sets up the other ends of all nodes' devices. Does nothing without an internet.
    pub(crate) fn connect_seats(&self) -> Result<(), LabError> {
        let Some(internet) = &self.plan.internet else { return Ok(()) };
        let seats = self.seats();
        let ports: String = seats.iter().map(|seat| internet.switch_port(seat)).collect();
        kernel::batch(&self.plan.namespace_of_wires(), &ports)?;
        for network in internet.networks.iter() {
            let NetworkKind::Site(site) = network.kind else { continue };
            let edges = seats.iter().filter(|seat| seat.site == site);
            let ports: String = edges.map(|seat| internet.router_port(seat)).collect();
            kernel::batch(&self.space(&network.name), &ports)?;
        }
        Ok(())
    }

    /// Starts the routers of networks, and BIRD beside each edge, which announces nothing yet.
    pub(crate) fn start_routers(&mut self) -> Result<(), LabError> {
        let mut starting = Vec::new();
        for process in self.of(Role::Router) {
            starting.push(self.start_router(&process)?);
        }
        starting.iter().try_for_each(Starting::wait)
    }

    fn start_router(&mut self, process: &Process) -> Result<Starting, LabError> {
        self.make_data(process)?;
        self.write_router_config(process)?;
        self.start(process, &[])
    }

    fn write_router_config(&self, process: &Process) -> Result<(), LabError> {
        let Some((internet, seat)) = self.plan.seat(&self.plan.nodes[process.node]) else { return Ok(()) };
        let write = |path: std::path::PathBuf, text: String| {
            fs::write(&path, text).map_err(LabError::io(format!("write {}", path.display())))
        };
        let config = self.places.bird_config(&process.name);
        match seat.kind {
            SeatKind::Network(number) => write(config, internet.router_config(number)),
            _ => write(config, internet.edge_config(&seat, &self.places.announcements(&process.name))),
        }
    }

    /// Asks a BIRD, and returns what it answers.
    fn birdc(&self, process: &str, words: &str) -> Result<String, LabError> {
        let mut command = std::process::Command::new("birdc");
        command.arg("-s").arg(self.places.bird_socket(process)).args(words.split(' '));
        kernel::run(&mut command, "")
    }

    /// Has all edges announce the anycast prefixes, by the commands of an operator.
    pub(crate) fn announce(&mut self) -> Result<(), LabError> {
        let internet = self.internet()?;
        let path = self.places.relations();
        fs::write(&path, internet.relations()).map_err(LabError::io(format!("write {}", path.display())))?;
        for (net, address) in Internet::prefixes() {
            self.as_owner(&["anycast", "prefix", "add", &net, "--address", &address.to_string()])?;
        }
        internet.viewers().iter().try_for_each(|viewer| self.add_neighbour(viewer))?;
        self.seats().iter().try_for_each(|seat| self.announce_at(seat))
    }

    /// Has an edge speak with its site's router.
    fn announce_at(&self, seat: &Seat) -> Result<(), LabError> {
        let neighbours = self.internet()?.neighbours(seat);
        neighbours.iter().try_for_each(|neighbour| self.add_neighbour(neighbour))
    }

    fn add_neighbour(&self, neighbour: &Neighbour) -> Result<(), LabError> {
        let args = neighbour.command();
        self.as_owner(&args.iter().map(String::as_str).collect::<Vec<_>>()).map(drop)
    }
}
