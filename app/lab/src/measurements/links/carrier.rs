//! The threads that carry packets between two namespaces: a TUN device in each, whose trains stay whole.
//!
//! The kernel's own netem is missing in many kernels, and a veth device that loses packets loses whole trains.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tun_rs::{DeviceBuilder, SyncDevice, VIRTIO_NET_HDR_LEN};

use super::{Shape, Space, train::Train, wire::Wire};
use crate::measurements::frame::RunError;

const MTU_BYTES: u16 = 1_500;
/// More than any train.
const MAX_FRAME_BYTES: usize = VIRTIO_NET_HDR_LEN + 65_536;
/// How many packets may wait in a device for the carrier.
const DEVICE_QUEUE: u32 = 20_000;
/// A sleep ends late by about this, so shorter waits are not slept.
const SHORT: Duration = Duration::from_micros(50);

/// A link between two namespaces. Its end removes the devices.
#[derive(Debug)]
pub(crate) struct Link {
    device: &'static str,
    ends: [Arc<Space>; 2],
    /// From the first end, and from the second.
    wires: [Arc<Mutex<Wire>>; 2],
    is_over: Arc<AtomicBool>,
}

/// Frames and when they arrive.
type Waiting = (Duration, Vec<Vec<u8>>);

impl Link {
    /// A link whose ends have a device of this name, each with its address, such as 10.0.0.1/24.
    pub(crate) fn new(device: &'static str, ends: [(&Arc<Space>, &str); 2], shape: Shape) -> Result<Self, RunError> {
        Self::made(device, ends, shape, true)
    }

    /// The same without trains: the kernel hands over each segment by itself, with its checksum.
    pub(crate) fn without_trains(
        device: &'static str,
        ends: [(&Arc<Space>, &str); 2],
        shape: Shape,
    ) -> Result<Self, RunError> {
        Self::made(device, ends, shape, false)
    }

    fn made(
        device: &'static str,
        ends: [(&Arc<Space>, &str); 2],
        shape: Shape,
        has_trains: bool,
    ) -> Result<Self, RunError> {
        // A device without trains has no headers of virtio, and gets empty ones here.
        let head_bytes = if has_trains { 0 } else { VIRTIO_NET_HDR_LEN };
        let open = |(space, address): (&Arc<Space>, &str)| {
            let made = space.within(|| {
                let made = DeviceBuilder::new().name(device).mtu(MTU_BYTES).offload(has_trains).build_sync();
                made.map_err(RunError::io("make a TUN device (`modprobe tun` loads its module)"))
            })?;
            let up = format!("addr add {address} dev {device}\nlink set {device} txqueuelen {DEVICE_QUEUE} up\n");
            space.ip(&up)?;
            Ok::<_, RunError>(Arc::new(made))
        };
        let devices = [open(ends[0])?, open(ends[1])?];
        let wires = [1, 2].map(|seed| Arc::new(Mutex::new(Wire::new(shape, seed))));
        let link = Self { device, ends: ends.map(|(space, _)| space.clone()), wires, is_over: Arc::default() };
        let began = Instant::now();
        for from in [0, 1] {
            let (sender, receiver) = mpsc::channel();
            let (device, wire, is_over) = (devices[from].clone(), link.wires[from].clone(), link.is_over.clone());
            thread::spawn(move || take((&device, head_bytes), &wire, began, &is_over, &sender));
            let device = devices[1 - from].clone();
            thread::spawn(move || deliver((&device, head_bytes), began, &receiver));
        }
        Ok(link)
    }

    /// Gives both directions this shape, and forgets what they carried. The same seed loses the same segments.
    pub(crate) fn set_shape(&self, shape: Shape, seed: u64) {
        for (wire, seed) in self.wires.iter().zip([seed, !seed]) {
            *wire.lock() = Wire::new(shape, seed);
        }
    }
}

impl Drop for Link {
    /// A reader of a removed device gets an error, and ends.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        for space in &self.ends {
            drop(space.ip(&format!("link del {}\n", self.device)));
        }
    }
}

/// Reads frames of a device until the link is over. So many bytes of their header are not read, and are zero.
fn take(
    (device, head_bytes): (&SyncDevice, usize),
    wire: &Mutex<Wire>,
    began: Instant,
    is_over: &AtomicBool,
    sender: &mpsc::Sender<Waiting>,
) {
    let mut buffer = vec![0; MAX_FRAME_BYTES];
    while !is_over.load(Ordering::Acquire) {
        let Ok(length) = device.recv(&mut buffer[head_bytes..]) else {
            thread::sleep(SHORT);
            continue;
        };
        let Some(train) = Train::parse(&buffer[..head_bytes + length]) else { continue };
        let (arrives, due) = wire.lock().carry(began.elapsed(), train.sizes().into_iter());
        let left = train.left(&arrives);
        if !left.is_empty() && sender.send((due, left)).is_err() {
            return;
        }
    }
}

/// Writes frames to a device when they are due, until their reader has ended. So many bytes of their header are left
/// out.
fn deliver((device, head_bytes): (&SyncDevice, usize), began: Instant, receiver: &mpsc::Receiver<Waiting>) {
    for (due, frames) in receiver {
        let left = due.saturating_sub(began.elapsed());
        if left > SHORT {
            thread::sleep(left);
        }
        for frame in frames {
            // A device that is gone loses packets, like a wire.
            drop(device.send(&frame[head_bytes..]));
        }
    }
}
