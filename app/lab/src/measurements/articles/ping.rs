//! `ping`: the classic tool and ours against a responder that lies.
//!
//! The classic tool (iputils) puts the time of sending at the beginning of a request's data, and believes what comes
//! back. The responder is a TUN device that this process reads: it answers each request after the same time.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    ops::Range,
    process::{Command, Output},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_ping::{Family, HEADER_BYTES, reply};
use sallyport_probe::Prober;
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::measurements::{
    PING, Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError, Spread},
    links::{Space, checksum},
};

const TARGET: Ipv4Addr = Ipv4Addr::new(10, 72, 0, 2);
const DEVICE: &str = "responder";
/// The true round trip.
const HELD: Duration = Duration::from_millis(20);
/// How long a request waits for its reply.
const PATIENCE_SECONDS: u64 = 1;
/// By how much a lying responder moves the time of sending.
const HOUR_SECONDS: i64 = 3_600;
/// The data that is left of a truncated reply, in bytes.
const TRUNCATED_BYTES: usize = 8;
/// How long a reader rests after an error.
const REST: Duration = Duration::from_millis(1);

/// What the responder does to the data of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    Nothing,
    /// Moves the time of sending by this many seconds.
    Moved(i64),
    Truncated,
}

const VARIANTS: [(&str, bool, Lie); 8] = [
    ("classic, honest", true, Lie::Nothing),
    ("ours, honest", false, Lie::Nothing),
    ("classic, sent an hour earlier", true, Lie::Moved(-HOUR_SECONDS)),
    ("ours, sent an hour earlier", false, Lie::Moved(-HOUR_SECONDS)),
    ("classic, sent an hour later", true, Lie::Moved(HOUR_SECONDS)),
    ("ours, sent an hour later", false, Lie::Moved(HOUR_SECONDS)),
    ("classic, truncated", true, Lie::Truncated),
    ("ours, truncated", false, Lie::Truncated),
];

/// The responder, and what it did.
#[derive(Debug)]
struct Responder {
    lie: Lie,
    /// How long it really held the requests, in milliseconds.
    held_ms: Vec<f64>,
    is_over: bool,
}

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Ping {
    space: Space,
    responder: Arc<Mutex<Responder>>,
    requests: u32,
    rounds: u32,
}

impl Ping {
    /// Makes the responder.
    pub(in crate::measurements) fn new(scale: Scale) -> Result<Self, RunError> {
        let (requests, rounds) = match scale {
            Scale::Full => (20, 3),
            Scale::Quick => (5, 1),
        };
        let space = Space::new()?;
        let device = space.within(|| {
            let made = DeviceBuilder::new().name(DEVICE).build_sync();
            made.map_err(RunError::io("make a TUN device (`modprobe tun` loads its module)"))
        })?;
        space.ip(&format!("addr add 10.72.0.1/24 dev {DEVICE}\nlink set {DEVICE} up\n"))?;
        let responder = Arc::new(Mutex::new(Responder { lie: Lie::Nothing, held_ms: Vec::new(), is_over: false }));
        let shared = responder.clone();
        thread::spawn(move || respond(&device, &shared));
        Ok(Self { space, responder, requests, rounds })
    }

    /// What the classic tool shows: how many replies it believes, and the round trips that it prints, in milliseconds.
    fn classic(&self) -> Result<(u32, Vec<f64>), RunError> {
        PING.version()?;
        let output = self.space.within(|| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", PING.program, "-n", "-i", "0.2"]);
            command.args(["-c", &self.requests.to_string(), "-W", &PATIENCE_SECONDS.to_string()]);
            command.arg(TARGET.to_string()).env("LC_ALL", "C").output().map_err(RunError::io("run ping"))
        })?;
        read_classic(&output).ok_or_else(|| RunError::Unfit(format!("ping printed no summary: {output:?}")))
    }

    /// What ours shows.
    fn ours(&self) -> Result<(u32, Vec<f64>), RunError> {
        let patience = Duration::from_secs(PATIENCE_SECONDS);
        let times = self.space.within(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(RunError::io("start a runtime"))?;
            runtime.block_on(async {
                let unfit = |error: sallyport_probe::ProbeError| RunError::Unfit(error.to_string());
                let (prober, mut times) = (Prober::new().map_err(unfit)?, Vec::new());
                for _ in 0..self.requests {
                    match prober.echo(IpAddr::V4(TARGET), patience).await {
                        Ok(round_trip) => times.push(round_trip.time.as_secs_f64() * 1e3),
                        Err(sallyport_probe::ProbeError::NoAnswer { .. }) => {}
                        Err(error) => return Err(unfit(error)),
                    }
                }
                Ok(times)
            })
        })?;
        Ok((u32::try_from(times.len()).unwrap_or(u32::MAX), times))
    }
}

impl Drop for Ping {
    /// The reader of a removed device gets an error, and ends.
    fn drop(&mut self) {
        self.responder.lock().is_over = true;
        drop(self.space.ip(&format!("link del {DEVICE}\n")));
    }
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

/// The round trip that a variant shows, over the true one.
const fn shown(sentence: &'static str, variant: &'static str, bounds: (f64, f64)) -> Claim {
    Claim::within(sentence, place(variant, "shown"), place(variant, "true"), bounds)
}

/// The replies that a variant believes, over the requests.
const fn believed(sentence: &'static str, variant: &'static str, share: f64) -> Claim {
    Claim::within(sentence, place(variant, "believed"), place(variant, "requests"), (share, share))
}

impl Measurement for Ping {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        Design {
            columns: vec![column("shown", "ms"), column("true", "ms"), column("believed", ""), column("requests", "")],
            variants: VARIANTS.map(|(name, ..)| name.to_owned()).to_vec(),
            claims: vec![
                shown("the classic tool is right about an honest responder", "classic, honest", (0.9, 1.5)),
                shown("ours is right about an honest responder", "ours, honest", (0.9, 1.5)),
                shown(
                    "a responder makes any round trip longer for the classic tool",
                    "classic, sent an hour earlier",
                    (1_000.0, f64::INFINITY),
                ),
                shown(
                    "a responder makes any round trip vanish for the classic tool",
                    "classic, sent an hour later",
                    (0.0, 0.01),
                ),
                believed("the classic tool believes truncated replies", "classic, truncated", 1.0),
                believed("ours believes every honest reply", "ours, honest", 1.0),
                believed("ours believes no reply with an earlier time", "ours, sent an hour earlier", 0.0),
                believed("ours believes no reply with a later time", "ours, sent an hour later", 0.0),
                believed("ours believes no truncated reply", "ours, truncated", 0.0),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (_, is_classic, lie) = VARIANTS[variant];
        {
            let mut responder = self.responder.lock();
            responder.lie = lie;
            responder.held_ms.clear();
        }
        let (believed, times) = if is_classic { self.classic()? } else { self.ours()? };
        let median = |times: Vec<f64>| Spread::of(times).map_or(0.0, |spread| spread.median);
        let held = median(self.responder.lock().held_ms.clone());
        Ok(vec![median(times), held, believed.into(), self.requests.into()])
    }
}

/// Reads the classic tool's lines: `time=20.1 ms` of each reply, and `5 received` of the summary.
fn read_classic(output: &Output) -> Option<(u32, Vec<f64>)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let time = |line: &str| line.split_once("time=")?.1.split_whitespace().next()?.parse().ok();
    let received = text.lines().find_map(|line| line.split_once(" received")?.0.rsplit_once(' ')?.1.parse().ok())?;
    Some((received, text.lines().filter_map(time).collect()))
}

/// Answers the requests of a device until the measurement is over.
fn respond(device: &SyncDevice, shared: &Mutex<Responder>) {
    let mut buffer = vec![0; 65_536];
    loop {
        let read: io::Result<usize> = device.recv(&mut buffer);
        let at = Instant::now();
        let (lie, is_over) = {
            let responder = shared.lock();
            (responder.lie, responder.is_over)
        };
        if is_over {
            return;
        }
        let Ok(length) = read else {
            thread::sleep(REST);
            continue;
        };
        let Some(answer) = answer(&buffer[..length], lie) else { continue };
        thread::sleep(HELD);
        shared.lock().held_ms.push(at.elapsed().as_secs_f64() * 1e3);
        // A reply that cannot be written is lost.
        drop(device.send(&answer));
    }
}

/// Where IPv4 has its length, its checksum and its addresses (RFC 791 section 3.1), in bytes.
const LENGTH: Range<usize> = 2..4;
const CHECKSUM: Range<usize> = 10..12;
const SOURCE: Range<usize> = 12..16;
const DESTINATION: Range<usize> = 16..20;
const ICMP: u8 = 1;
const ECHO_REQUEST: u8 = 8;

/// The reply to an echo request over IPv4, with a lie. None: the packet is another one.
fn answer(packet: &[u8], lie: Lie) -> Option<Vec<u8>> {
    let header = packet.get(..20).filter(|header| header[0] == 0x45 && header[9] == ICMP)?;
    let message = packet.get(20..).filter(|message| message.len() >= HEADER_BYTES && message[0] == ECHO_REQUEST)?;
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let mut data = message[HEADER_BYTES..].to_vec();
    match lie {
        Lie::Nothing => {}
        Lie::Truncated => data.truncate(TRUNCATED_BYTES),
        Lie::Moved(seconds) => {
            // The data begins with `struct timeval`, in the byte order of the machine.
            let sent: &mut [u8; 8] = data.first_chunk_mut()?;
            *sent = i64::from_ne_bytes(*sent).wrapping_add(seconds).to_ne_bytes();
        }
    }
    let mut answer = header.to_vec();
    answer[SOURCE].copy_from_slice(&packet[DESTINATION]);
    answer[DESTINATION].copy_from_slice(&packet[SOURCE]);
    answer.extend(reply(Family::V4, word(4), word(6), &data));
    let length = u16::try_from(answer.len()).ok()?;
    answer[LENGTH].copy_from_slice(&length.to_be_bytes());
    answer[CHECKSUM].fill(0);
    let sum = checksum(&answer[..20]);
    answer[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    Some(answer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use sallyport_ping::{Form, parse, request};

    use super::*;

    fn asked(data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0, 10, 72, 0, 1, 10, 72, 0, 2];
        packet.extend(request(Family::V4, 7, 9, data));
        packet
    }

    #[test]
    fn an_answer_is_a_right_reply_with_only_the_wanted_lie() {
        let mut data = 1_000_i64.to_ne_bytes().to_vec();
        data.extend([5; 48]);
        for (lie, seconds, length) in
            [(Lie::Nothing, 1_000, 56), (Lie::Moved(-HOUR_SECONDS), -2_600, 56), (Lie::Truncated, 1_000, 8)]
        {
            let answer = answer(&asked(&data), lie).unwrap();
            let echo = parse(Family::V4, Form::WithIpHeader, &answer).unwrap();
            assert_eq!((echo.identifier, echo.sequence, echo.data.len()), (7, 9, length), "{lie:?}");
            assert_eq!(i64::from_ne_bytes(*echo.data.first_chunk().unwrap()), seconds, "{lie:?}");
            assert_eq!((&answer[SOURCE], checksum(&answer[..20])), (&[10, 72, 0, 2][..], 0), "{lie:?}");
        }
    }

    #[test]
    fn other_packets_get_no_answer() {
        let mut other = asked(&[0; 56]);
        other[20] = 0;
        assert_eq!(answer(&other, Lie::Nothing), None, "a reply");
        for end in 0..30 {
            assert!(answer(&asked(&[0; 2])[..end], Lie::Moved(1)).is_none(), "{end} bytes");
        }
    }

    #[test]
    fn the_lines_of_the_classic_tool_are_read() {
        let printed = "64 bytes from 10.72.0.2: icmp_seq=1 ttl=64 time=20.4 ms\nWarning: time of day goes back\n\
                       64 bytes from 10.72.0.2: icmp_seq=2 ttl=64 time=3600020 ms\n\
                       16 bytes from 10.72.0.2: icmp_seq=3\n\
                       3 packets transmitted, 3 received, 0% packet loss, time 401ms\n";
        let output = |printed: &str| Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: printed.into(),
            stderr: Vec::new(),
        };
        assert_eq!(read_classic(&output(printed)), Some((3, vec![20.4, 3_600_020.0])));
        assert_eq!(read_classic(&output("usage")), None);
    }
}
