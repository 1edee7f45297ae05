//! Comparisons with a model: the part of a test that runs in the namespace of its router, and its random numbers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::rig::Rig;

const PINS: &str = "PACKET_INNER_PINS";
const PORTS: &str = "PACKET_INNER_PORTS";
const MACS: &str = "PACKET_INNER_MACS";

/// The command that runs an ignored test in the namespace of the router.
pub(crate) fn command(rig: &Rig, test: &str) -> Command {
    let links = ["d0", "d1"]
        .map(|device| -> Value { serde_json::from_str(&rig.ip("dut", &format!("-j link show {device}"))).unwrap() });
    let both = |field: &str| {
        links.iter().map(|link| link[0][field].to_string().replace('"', "")).collect::<Vec<_>>().join(",")
    };
    let mut command = rig.inside("dut", std::env::current_exe().unwrap().to_str().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env(PINS, rig.pins()).env(PORTS, both("ifindex")).env(MACS, both("address"));
    command
}

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// The router, as the ignored test sees it: its state, and the indexes and hardware addresses of its ports.
pub(crate) struct Inner {
    pins: PathBuf,
    pub(crate) ports: Vec<u32>,
    macs: Vec<Vec<u8>>,
}

impl Inner {
    pub(crate) fn read() -> Self {
        let mac = |mac: &str| mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        Self {
            pins: variable(PINS).into(),
            ports: variable(PORTS).split(',').map(|port| port.parse().unwrap()).collect(),
            macs: variable(MACS).split(',').map(mac).collect(),
        }
    }

    pub(crate) fn pins(&self) -> &Path {
        &self.pins
    }

    /// Sets the destination of a frame to a port of the router.
    pub(crate) fn set_destination(&self, frame: &mut [u8], port: usize) {
        frame[..6].copy_from_slice(&self.macs[port]);
    }
}

/// Numbers from a seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
