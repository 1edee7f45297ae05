//! Tests of the directory: single messages, and thousands of random schedules.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod config;
mod failover;
mod reader;
mod simulation;
mod world;

use std::time::Instant;

use sallyport_directory::EdgeCard;
use sallyport_model::{EdgeId, OriginHealth, SocketId, TunnelId, TunnelPresence};

/// Some edge.
pub(crate) fn card(number: u8) -> EdgeCard {
    EdgeCard {
        edge: EdgeId::from_random([number; 16]),
        name: format!("edge-{number}").parse().unwrap(),
        region: "eu".parse().unwrap(),
        addresses: vec![format!("192.0.2.{number}:443").parse().unwrap()],
        program: "0.1.0".to_owned(),
        since: 0,
        state: Default::default(),
        http3_port: None,
        anycast: Vec::new(),
        egress: Vec::new(),
        balanced: None,
    }
}

/// Some tunnel.
pub(crate) fn presence(number: u8, since: i64) -> TunnelPresence {
    TunnelPresence {
        tunnel: TunnelId::from_random([number; 16]),
        socket: SocketId::from_random([1; 16]),
        connector_addr: "198.51.100.1:1000".parse().unwrap(),
        agent: "test".to_owned(),
        since,
        home: None,
        origin: None,
        host: None,
        spread: false,
        health: OriginHealth::Well,
        failure: None,
    }
}

pub(crate) fn begin() -> Instant {
    Instant::now()
}
