//! `window`: what the receive buffer of a connection holds, charges and advertises, segment by segment, and of a live
//! flow.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use sallyport_sock_diag::{SockDiagError, Watch, network_counts};
use sallyport_tcp_window::{Drawn, NetworkCounts, Sample, Target, draw, judge};
use socket2::{Domain, Socket, Type};

use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
    links::{Link, Shape, Space},
};

const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 2);
const PORT: u16 = 7_000;
const RATE_BITS: u64 = 1_000_000_000;
/// The delay of the live flow, one way.
const LIVE_DELAY: Duration = Duration::from_millis(10);
/// What a full segment carries at an MTU of 1,500 bytes, with timestamps.
const SEGMENT_BYTES: usize = 1_448;
const SMALL_BYTES: usize = 100;
const KIB: usize = 1_024;
/// What the sender may keep until the window opens.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// The middle and the end of `tcp_rmem` of a machine with enough memory.
const DEFAULT_BYTES: usize = 128 * KIB;
const MOST_BYTES: usize = 6 << 20;
/// How many segments are sent at most, and after how many without effect the window counts as closed.
const MAX_SEGMENTS: usize = 1_200;
const MAX_WITHOUT_EFFECT: usize = 4;
/// How long a segment may take to be received, and how often that is looked at.
const ARRIVAL_TIME: Duration = Duration::from_millis(50);
const OFTEN: Duration = Duration::from_micros(200);
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// Between two readings of a live flow.
const EVERY: Duration = Duration::from_millis(5);

/// What a variant does.
#[derive(Debug, Clone, Copy)]
struct Setting {
    name: &'static str,
    /// SO_RCVBUF, or where the buffer begins by `tcp_rmem`.
    buffer_bytes: usize,
    is_by_setting: bool,
    segment_bytes: usize,
    has_scaling: bool,
    is_read: bool,
    is_live: bool,
}

const KEPT: Setting = Setting {
    name: "32 KiB, full segments, not read",
    buffer_bytes: 32 * KIB,
    is_by_setting: false,
    segment_bytes: SEGMENT_BYTES,
    has_scaling: true,
    is_read: false,
    is_live: false,
};

const SETTINGS: [Setting; 5] = [
    KEPT,
    Setting { name: "32 KiB, small segments, not read", segment_bytes: SMALL_BYTES, ..KEPT },
    Setting { name: "32 KiB, no window scaling, not read", has_scaling: false, ..KEPT },
    Setting {
        name: "2 MiB by tcp_rmem, read at once",
        buffer_bytes: 2_048 * KIB,
        is_by_setting: true,
        is_read: true,
        ..KEPT
    },
    Setting {
        name: "live flow over 20 ms",
        buffer_bytes: DEFAULT_BYTES,
        is_by_setting: true,
        is_read: true,
        is_live: true,
        ..KEPT
    },
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Window {
    link: Link,
    sender: Arc<Space>,
    receiver: Arc<Space>,
    rounds: u32,
    live_time: Duration,
    /// The readings of the last run of each variant, and what the receiver's namespace counted in all.
    drawn: [Vec<Sample>; SETTINGS.len()],
    counts: NetworkCounts,
}

impl Window {
    /// Makes the path.
    pub(in crate::measurements) fn new(scale: Scale) -> Result<Self, RunError> {
        let (rounds, seconds) = match scale {
            Scale::Full => (3, 3),
            Scale::Quick => (1, 1),
        };
        let (sender, receiver) = (Arc::new(Space::new()?), Arc::new(Space::new()?));
        let ends = [(&sender, "10.74.0.1/24"), (&receiver, "10.74.0.2/24")];
        let link = Link::new("path", ends, shape(Duration::ZERO))?;
        let (drawn, counts) = (Default::default(), NetworkCounts::default());
        Ok(Self { link, sender, receiver, rounds, live_time: Duration::from_secs(seconds), drawn, counts })
    }

    /// A connection, its sender first.
    fn connected(&self, setting: &Setting) -> Result<(TcpStream, TcpStream), RunError> {
        let address = SocketAddr::from((RECEIVER, PORT));
        let listener = self.receiver.within(|| {
            let listen = || {
                let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                listener.set_reuse_address(true)?;
                if !setting.is_by_setting {
                    set_socket_recv_buffer_size_force(&listener, setting.buffer_bytes)?;
                }
                listener.bind(&address.into())?;
                listener.listen(1)?;
                Ok::<_, io::Error>(listener)
            };
            listen().map_err(RunError::io("listen"))
        })?;
        let connected = self.sender.within(|| {
            let sender = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(RunError::io("make a socket"))?;
            let connect = || {
                set_socket_send_buffer_size_force(&sender, SEND_BUFFER_BYTES)?;
                sender.connect_timeout(&address.into(), CONNECT_TIME)?;
                sender.set_tcp_nodelay(true)
            };
            connect().map_err(RunError::io("connect")).map(|()| sender)
        })?;
        let (accepted, _) = listener.accept().map_err(RunError::io("accept"))?;
        Ok((connected.into(), accepted.into()))
    }
}

fn shape(delay: Duration) -> Shape {
    Shape { rate_bits: RATE_BITS, delay, loss_percent: 0.0 }
}

fn unread(error: SockDiagError) -> RunError {
    RunError::Unfit(error.to_string())
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

const fn ratio(
    sentence: &'static str,
    variant: &'static str,
    columns: (&'static str, &'static str),
    bounds: (f64, f64),
) -> Claim {
    Claim::within(sentence, place(variant, columns.0), place(variant, columns.1), bounds)
}

impl Measurement for Window {
    fn design(&self) -> Design {
        const NO_BOUND: f64 = f64::INFINITY;
        let columns = ["most window", "first window", "asked", "budget", "most queued", "most memory"];
        let mut columns = columns.map(|name| Column { name, unit: "KiB" }).to_vec();
        columns.push(Column { name: "dropped", unit: "segments" });
        let [kept, small, unscaled, _, live] = SETTINGS.map(|setting| setting.name);
        Design {
            columns,
            variants: SETTINGS.map(|setting| setting.name.to_owned()).to_vec(),
            claims: vec![
                ratio("SO_RCVBUF of 32 KiB is a budget of 64 KiB", kept, ("budget", "asked"), (2.0, 2.0)),
                ratio("segments charge more memory than they carry", kept, ("most memory", "most queued"), (1.1, 4.0)),
                ratio("the advertised window is less than the budget", kept, ("most window", "budget"), (0.1, 0.99)),
                ratio("small segments charge about the whole budget", small, ("most memory", "budget"), (0.5, 1.5)),
                ratio(
                    "without window scaling the memory reaches the budget",
                    unscaled,
                    ("most memory", "budget"),
                    (0.7, 2.0),
                ),
                ratio(
                    "the window of a live flow opens while the program reads",
                    live,
                    ("most window", "first window"),
                    (4.0, NO_BOUND),
                ),
                ratio("the buffer of a live flow grows", live, ("budget", "asked"), (2.0, NO_BOUND)),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let setting = SETTINGS[variant];
        self.link.set_shape(shape(if setting.is_live { LIVE_DELAY } else { Duration::ZERO }), 0);
        let scaling = if setting.has_scaling { "1" } else { "0" };
        for space in [&self.sender, &self.receiver] {
            space.set(&[("ipv4/tcp_window_scaling", scaling)])?;
        }
        let (begin, most) = match setting {
            Setting { is_live: false, is_by_setting: true, buffer_bytes, .. } => (buffer_bytes, buffer_bytes),
            _ => (DEFAULT_BYTES, MOST_BYTES),
        };
        self.receiver.set(&[("ipv4/tcp_rmem", &format!("4096 {begin} {most}"))])?;
        let (sender, receiver) = self.connected(&setting)?;
        let ends = receiver.local_addr().and_then(|local| Ok(Target::Flow(local, receiver.peer_addr()?)));
        let target = ends.map_err(RunError::io("look at a connection"))?;
        // The netlink socket of the watch stays in the namespace of the receiver.
        let (mut watch, before) =
            self.receiver.within(|| Ok((Watch::begin(target).map_err(unread)?, network_counts())))?;
        if setting.is_live {
            live(sender, receiver, &mut watch, self.live_time)?;
        } else {
            step_by_step(sender, receiver, &setting, &mut watch)?;
        }
        let counts = self.receiver.within(|| Ok(network_counts()))?.since(before);
        let watched = watch.watched().first().ok_or_else(|| RunError::Unfit("no connection was seen".to_owned()))?;
        self.drawn[variant].clone_from(&watched.samples);
        self.counts.coalesced += counts.coalesced;
        self.counts.collapsed += counts.collapsed;
        self.counts.dropped += counts.dropped;
        Ok(figures(&setting, &watched.samples, counts.dropped))
    }

    fn drawing(&self) -> Option<String> {
        let there = SETTINGS.iter().zip(&self.drawn).filter(|(_, samples)| !samples.is_empty());
        let sentences: Vec<_> = there.clone().map(|(_, samples)| judge(samples).sentence).collect();
        let drawn = there.zip(&sentences).map(|((setting, samples), sentence)| Drawn {
            title: setting.name,
            sentence,
            samples,
        });
        Some(draw(&drawn.collect::<Vec<_>>(), self.counts))
    }
}

fn figures(setting: &Setting, samples: &[Sample], dropped: u64) -> Vec<f64> {
    let kib = |bytes: u32| f64::from(bytes) / KIB as f64;
    let most = |of: &dyn Fn(&Sample) -> u32| kib(samples.iter().map(of).max().unwrap_or_default());
    let window = |sample: &Sample| sample.receive_window_bytes.unwrap_or_default();
    vec![
        most(&window),
        samples.first().map_or(0.0, |sample| kib(window(sample))),
        setting.buffer_bytes as f64 / KIB as f64,
        most(&|sample| sample.receive_buffer_bytes),
        most(&|sample| sample.receive_queue_bytes),
        most(&|sample| sample.receive_memory_bytes),
        dropped as f64,
    ]
}

/// Sends segment after segment, and reads the receiver's socket after each one.
fn step_by_step(
    mut sender: TcpStream,
    mut receiver: TcpStream,
    setting: &Setting,
    watch: &mut Watch,
) -> Result<(), RunError> {
    let both = sender.set_nonblocking(true).and_then(|()| receiver.set_nonblocking(true));
    both.map_err(RunError::io("make sockets that do not block"))?;
    let (data, mut buffer) = (vec![7; setting.segment_bytes], vec![0; 64 * KIB]);
    let (began, mut received, mut without_effect) = (Instant::now(), 0, 0);
    for _ in 0..MAX_SEGMENTS {
        if sender.write(&data).is_err() || without_effect >= MAX_WITHOUT_EFFECT {
            break;
        }
        let sent = Instant::now();
        let now = loop {
            watch.read(began.elapsed()).map_err(unread)?;
            let last = watch.watched().first().and_then(|watched| watched.samples.last());
            let now = last.map_or(0, |sample| sample.received_bytes);
            if now > received || sent.elapsed() > ARRIVAL_TIME {
                break now;
            }
            thread::sleep(OFTEN);
        };
        without_effect = if now > received { 0 } else { without_effect + 1 };
        received = now;
        if setting.is_read {
            // Nothing is left to be read in the end, or the connection ended.
            while receiver.read(&mut buffer).is_ok_and(|count| count > 0) {}
        }
    }
    Ok(())
}

/// Sends as much as possible for some time, and reads it at once.
fn live(mut sender: TcpStream, mut receiver: TcpStream, watch: &mut Watch, time: Duration) -> Result<(), RunError> {
    let ends = sender.try_clone().and_then(|near| Ok([near, receiver.try_clone()?]));
    let ends = ends.map_err(RunError::io("share a socket"))?;
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            let data = vec![7; 64 * KIB];
            while sender.write_all(&data).is_ok() {}
        });
        scope.spawn(move || {
            let mut buffer = vec![0; 256 * KIB];
            while receiver.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        let mut watching = || {
            while began.elapsed() < time {
                thread::sleep(EVERY);
                watch.read(began.elapsed()).map_err(unread)?;
            }
            Ok(())
        };
        let watched = watching();
        // Both threads end with their connection.
        for end in &ends {
            drop(end.shutdown(Shutdown::Both));
        }
        watched
    })
}
