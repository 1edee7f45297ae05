//! A link between two network namespaces with a delay and loss, where the kernel has no netem: a TUN device in each, and
//! this process between them.
//!
//! usage: link ONE_WAY_MS LOSS_PERCENT MBIT_S NAMESPACE
//!
//! Makes the device `link0` here and in the namespace (a path such as /proc/PID/ns/net), which must then get addresses.
//! Every packet is a segment on a wire: it is lost or not by itself, and goes through a bottleneck of this rate with a
//! queue of `MAX_QUEUE`. The same packets are lost in every run that sends the same.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::AsRawFd,
    process::ExitCode,
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

const MAX_PACKET_BYTES: usize = 65_536;
const MAX_QUEUED_PACKETS: usize = 65_536;
/// What waits longer than this for the bottleneck is dropped.
const MAX_QUEUE: Duration = Duration::from_millis(200);

const TUNSETIFF: u64 = 0x4004_54ca;
const IFF_TUN_NO_PI: u16 = 0x1001;
const CLONE_NEWNET: i32 = 0x4000_0000;

unsafe extern "C" {
    fn ioctl(fd: i32, request: u64, argument: *mut u8) -> i32;
    fn setns(fd: i32, kind: i32) -> i32;
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("link: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [delay, loss, rate, namespace] = arguments else {
        return Err("usage: link ONE_WAY_MS LOSS_PERCENT MBIT_S NAMESPACE".to_owned());
    };
    let number = |text: &String| text.parse::<f64>().map_err(|_| format!("{text:?} is no number"));
    let path = Path {
        delay: Duration::from_secs_f64(number(delay)? / 1e3),
        loss: number(loss)? / 100.0,
        rate: number(rate)? * 1e6 / 8.0,
    };
    let near = tun()?;
    let far = File::open(namespace).map_err(|error| format!("{namespace}: {error}"))?;
    // A thread has a namespace of its own, and takes it along to its end; the device stays.
    let far = thread::spawn(move || {
        // SAFETY: a plain call on a descriptor that is open.
        if unsafe { setns(far.as_raw_fd(), CLONE_NEWNET) } != 0 {
            return Err(format!("setns: {}", std::io::Error::last_os_error()));
        }
        tun()
    });
    let far = far.join().map_err(|_| "the other namespace".to_owned())??;
    let copy = |device: &File| device.try_clone().map_err(|error| error.to_string());
    let (near_in, far_in) = (copy(&near)?, copy(&far)?);
    let there = carry(near_in, far, path, 0x9e37_79b9_7f4a_7c15);
    let back = carry(far_in, near, path, 0xd1b5_4a32_d192_ed03);
    there.join().and_then(|()| back.join()).map_err(|_| "a direction ended".to_owned())
}

#[derive(Clone, Copy)]
struct Path {
    delay: Duration,
    /// From 0 to 1.
    loss: f64,
    /// Bytes a second.
    rate: f64,
}

/// The device of the namespace that this thread is in.
fn tun() -> Result<File, String> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let device = device.map_err(|error| format!("/dev/net/tun: {error}"))?;
    // struct ifreq: 16 bytes of name, then the flags.
    let mut request = [0_u8; 40];
    request[..5].copy_from_slice(b"link0");
    request[16..18].copy_from_slice(&IFF_TUN_NO_PI.to_ne_bytes());
    // SAFETY: the argument is a live ifreq, which this call reads and writes.
    if unsafe { ioctl(device.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) } != 0 {
        return Err(format!("TUNSETIFF: {}", std::io::Error::last_os_error()));
    }
    Ok(device)
}

/// Carries one direction.
fn carry(mut from: File, mut to: File, path: Path, seed: u64) -> thread::JoinHandle<()> {
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(MAX_QUEUED_PACKETS);
    thread::spawn(move || {
        for (due, packet) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // A device that is down loses what comes, as wires do.
            let _ = to.write(&packet);
        }
    });
    thread::spawn(move || {
        let (mut buffer, mut state, mut free_at) = (vec![0; MAX_PACKET_BYTES], seed, Instant::now());
        loop {
            let Ok(length) = from.read(&mut buffer) else {
                thread::sleep(Duration::from_millis(10)); // not up yet
                continue;
            };
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let now = Instant::now();
            free_at = free_at.max(now);
            if (state >> 11) as f64 / (1_u64 << 53) as f64 <= path.loss || free_at - now > MAX_QUEUE {
                continue;
            }
            free_at += Duration::from_secs_f64(length as f64 / path.rate);
            if sender.send((free_at + path.delay, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    })
}
