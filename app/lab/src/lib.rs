//! A laboratory: a network of edges on one Linux machine, in network namespaces, with delay, loss and bandwidth on its
//! links, and faults.
//!
//! One half decides without touching the machine: a [`Topology`] becomes a [`Plan`] with names, addresses, command
//! lines and files, and [`wires`] decides about packets. The other half acts: [`up()`] and [`down`], the program that
//! carries packets ([`run_wires`]), and the faults of a [`Lab`]. It uses nothing of Sallyport but its public commands.

mod anycast;
mod anycast_run;
mod capacity;
mod chance;
mod chaos;
mod error;
mod fault;
mod kernel;
mod load;
pub mod measurements;
mod plan;
mod process;
mod programs;
mod relay;
mod schedule;
mod service;
pub mod simulate;
mod start;
mod state;
mod status;
mod topology;
mod up;
mod watch;
pub mod wires;
mod wrk;

pub use self::{
    anycast::{AnycastError, AnycastOptions, AnycastTopology, Internet, Plant},
    anycast_run::{AskOptions, Asked, Drill, DrillReport, Family, GrowReport, Landing, MAX_ASK_RATE, run_ask},
    capacity::{ByProcess, DirectoryFigures, LoadFigures, MAX_TUNNELS, ResourceUsage, Soon, TunnelFigures},
    chaos::{ChaosLoad, ChaosOptions, ChaosReport, ClientFigures, FaultReport, MAX_CHAOS_TIME, Stop},
    error::LabError,
    load::{Failed, LoadOptions, LoadReport, MAX_CONNECTIONS, Tick, run as run_load},
    plan::{DOMAIN, Kind, Launch, Node, Paths, Plan, Process, Programs, Role, Secrets},
    process::{Life, Started, Used},
    relay::{Order, Wiring, run as run_wires},
    schedule::{Act, Fault, Target, schedule},
    service::{ORIGIN_HEADER, run as run_service},
    state::{DEFAULT_PARENT, Lab, State},
    status::{ProcessStatus, Status},
    topology::{Database, LabName, Link, MAX_DELAY, REGIONS, Topology, TopologyError, TopologyOptions, rate_bits},
    up::{OWNER, all, down, places_of, up},
    wrk::WrkReport,
};
