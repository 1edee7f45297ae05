//! `paths` and `tap`: what one TCP connection carries, and what it costs, within a machine: by the loopback device,
//! between namespaces by veth devices, and through a program between two TUN devices, with and without offloads.
//!
//! Sender, receiver and the program between them are threads of this process, so its processor time has all of the
//! cost.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use socket2::Protocol;

use super::transfer::Transfer;
use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
    links::{Link, Shape, Space, connect},
};

/// The address of the receiver, and the port of the round trips.
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 2);
const PORT: u16 = 5_202;
const ROUND_TRIPS: u32 = 200;
const PATIENCE: Duration = Duration::from_secs(30);
/// A link that never waits.
const FREE: Shape = Shape { rate_bits: 1_000_000_000_000, delay: Duration::ZERO, loss_percent: 0.0 };
/// The messages of the article, in bytes.
const LARGE: usize = 20_000;
const SMALL: usize = 500;

/// Where the connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Loopback,
    /// Between namespaces, with this MTU.
    Veth(u16),
    /// Through a program, which gets trains of segments.
    Trains,
    /// Through a program, which gets each segment.
    Segments,
}

/// A variant: its name, where it goes, and the bytes of a message.
type Variant = (&'static str, Way, usize);

const CALICO: [Variant; 8] = [
    ("host, 20,000 bytes", Way::Loopback, LARGE),
    ("namespaces, MTU 1500, 20,000 bytes", Way::Veth(1_500), LARGE),
    ("namespaces, MTU 9000, 20,000 bytes", Way::Veth(9_000), LARGE),
    ("TUN devices, MTU 1500, 20,000 bytes", Way::Trains, LARGE),
    ("host, 500 bytes", Way::Loopback, SMALL),
    ("namespaces, MTU 1500, 500 bytes", Way::Veth(1_500), SMALL),
    ("namespaces, MTU 9000, 500 bytes", Way::Veth(9_000), SMALL),
    ("TUN devices, MTU 1500, 500 bytes", Way::Trains, SMALL),
];

const TAP: [Variant; 4] = [
    ("each segment, 20,000 bytes", Way::Segments, LARGE),
    ("trains of segments, 20,000 bytes", Way::Trains, LARGE),
    ("each segment, 500 bytes", Way::Segments, SMALL),
    ("trains of segments, 500 bytes", Way::Trains, SMALL),
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Paths {
    variants: &'static [Variant],
    claims: fn() -> Vec<Claim>,
    time: Duration,
    rounds: u32,
}

impl Paths {
    /// The host, namespaces, and a program between.
    pub(in crate::measurements) fn calico(scale: Scale) -> Self {
        Self::new(scale, &CALICO, calico_claims)
    }

    /// A program between, with offloads and without.
    pub(in crate::measurements) fn tap(scale: Scale) -> Self {
        Self::new(scale, &TAP, tap_claims)
    }

    fn new(scale: Scale, variants: &'static [Variant], claims: fn() -> Vec<Claim>) -> Self {
        let (millis, rounds) = match scale {
            Scale::Full => (3_000, 3),
            Scale::Quick => (300, 1),
        };
        Self { variants, claims, time: Duration::from_millis(millis), rounds }
    }

    fn measured(&self, sender: &Space, receiver: &Space, to: Ipv4Addr, message: usize) -> Result<Vec<f64>, RunError> {
        let transfer = Transfer { to, protocol: Protocol::TCP, congestion: "cubic", time: self.time, message };
        let before = process_time();
        let mbits = transfer.run(sender, receiver)?;
        let cpu = process_time() - before;
        let gbits = mbits / 1e3 * self.time.as_secs_f64();
        Ok(vec![mbits, cpu.as_secs_f64() * 1e3 / gbits, round_trip_us(sender, receiver, to)?])
    }
}

const fn cost(variant: &'static str) -> Place {
    Place { variant, column: "processor time" }
}

fn calico_claims() -> Vec<Claim> {
    let [(host, ..), (veth, ..), _, (tun, ..), _, (small, ..), ..] = CALICO;
    vec![
        Claim::within("a namespace costs little more than the host", cost(veth), cost(host), (0.5, 3.0)),
        Claim::at_least("a program between costs more than devices of the kernel", cost(tun), cost(veth), 1.1),
        Claim::at_least("small messages cost more", cost(small), cost(veth), 1.2),
    ]
}

fn tap_claims() -> Vec<Claim> {
    let [(segments, ..), (trains, ..), ..] = TAP;
    vec![Claim::at_least("segments cost several times as much as trains", cost(segments), cost(trains), 2.0)]
}

impl Measurement for Paths {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        Design {
            columns: vec![
                column("goodput", "Mbit/s"),
                column("processor time", "ms a Gbit"),
                column("round trip", "us"),
            ],
            variants: self.variants.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            claims: (self.claims)(),
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, way, message) = self.variants[variant];
        let (sender, receiver) = (Arc::new(Space::new()?), Arc::new(Space::new()?));
        let [near, far] = ["10.74.0.1/24", "10.74.0.2/24"];
        match way {
            Way::Loopback => self.measured(&sender, &sender, Ipv4Addr::LOCALHOST, message),
            Way::Veth(mtu) => {
                connect((&sender, "near", near), (&receiver, "far", far))?;
                sender.ip(&format!("link set near mtu {mtu}\n"))?;
                receiver.ip(&format!("link set far mtu {mtu}\n"))?;
                self.measured(&sender, &receiver, RECEIVER, message)
            }
            Way::Trains => {
                let _link = Link::new("path", [(&sender, near), (&receiver, far)], FREE)?;
                self.measured(&sender, &receiver, RECEIVER, message)
            }
            Way::Segments => {
                let _link = Link::without_trains("path", [(&sender, near), (&receiver, far)], FREE)?;
                self.measured(&sender, &receiver, RECEIVER, message)
            }
        }
    }
}

/// The processor time of this process.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The mean time of a byte there and back, in microseconds.
fn round_trip_us(sender: &Space, receiver: &Space, to: Ipv4Addr) -> Result<f64, RunError> {
    let failed = || RunError::io("measure round trips");
    let listener = receiver.within(|| TcpListener::bind((to, PORT)).map_err(failed()))?;
    let mut near = sender.within(|| TcpStream::connect((to, PORT)).map_err(failed()))?;
    let (mut far, _) = listener.accept().map_err(failed())?;
    for stream in [&near, &far] {
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(failed())?;
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
        });
        let began = Instant::now();
        for _ in 0..ROUND_TRIPS {
            let mut byte = [7];
            near.write_all(&byte).and_then(|()| near.read_exact(&mut byte)).map_err(failed())?;
        }
        let time = began.elapsed();
        drop(near);
        Ok(time.as_secs_f64() * 1e6 / f64::from(ROUND_TRIPS))
    })
}
