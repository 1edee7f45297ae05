//! A laboratory: a whole network of edges on one Linux machine, in network namespaces, with links that have delay, loss
//! and a rate, and faults that can be done to it.
//!
//! What it consists of is decided without touching the machine: a [`Topology`] comes to a [`Plan`] with names, addresses,
//! command lines and files, and [`wires`] decides what becomes of a packet. The rest does it: [`up()`] and [`down`], the
//! program that carries packets ([`run_wires`]), and the faults of a [`Lab`]. It uses nothing of Sallyport but its public
//! commands.

mod chaos;
mod error;
mod fault;
mod kernel;
mod load;
mod measure;
mod plan;
mod process;
mod programs;
mod relay;
mod schedule;
mod service;
mod start;
mod state;
mod status;
mod topology;
mod up;
mod watch;
pub mod wires;
mod wrk;

pub use self::{
    chaos::{ChaosLoad, ChaosReport, ChaosWish, FaultReport, MAX_CHAOS_TIME, Seen, Stop},
    error::LabError,
    load::{Failed, LoadReport, LoadWish, MAX_CONNECTIONS, Tick, run as run_load},
    measure::{ByProcess, DirectoryFigures, LoadFigures, MAX_TUNNELS, Soon, Taken, TunnelFigures},
    plan::{DOMAIN, Kind, Launch, Node, Places, Plan, Process, Programs, Role, Secrets},
    process::{Life, Started, Used},
    relay::{Order, Wiring, run as run_wires},
    schedule::{Act, Fault, Target, schedule},
    service::{ORIGIN_HEADER, run as run_service},
    state::{DEFAULT_PARENT, Lab, State},
    status::{ProcessStatus, Status},
    topology::{Database, LabName, Link, MAX_DELAY, REGIONS, Topology, TopologyError, Wish, rate_bits},
    up::{OWNER, all, down, places_of, up},
    wrk::WrkReport,
};
