//! Balancers: services, slot tables, tunnels to edges, and slices of ports. Uses the parser, checksums and the layout.

mod arrival;
mod compile;
mod config;
mod edge;
mod liveness;
mod shield;
mod slices;
mod slots;
mod steer;
mod tunnel;

pub use arrival::{Arrival, quic_server};
pub use compile::{
    ConfigError, Egress, MAX_EDGES, MAX_EGRESS, MAX_POOLS, MAX_RANGES, MAX_TARGETS, MAX_VIRTUALS, Numbers, Range,
    Settings, Tables, Target, TargetKind, slice_of,
};
pub use config::{
    BalanceConfig, EdgeConfig, EdgeState, EgressConfig, Encapsulation, Fragments, GUE_PORT, MAX_CONNECTIONS,
    MachineConfig, Ports, Protocol, ServiceConfig, ShieldConfig, SiteConfig, SliceConfig,
};
pub use edge::Edge;
pub use liveness::Liveness;
pub use shield::{
    Bucket, Limits, MAX_RATE, MAX_SOURCES, Rate, Sources, SynCookies, source_of, syn_cookie_answer, syn_cookie_of,
};
pub use slices::{PortSlices, SliceError, steering_port};
pub use slots::{Member, POOL_SLOTS, Slot, fill_slots};
pub use steer::{SteerReason, Steered, Steering, UDP_IDLE_SECONDS};
pub use tunnel::{Outer, Unwrapped, unwrap, wrap};
