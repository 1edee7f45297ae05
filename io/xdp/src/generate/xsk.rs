//! A sender whose frames this process makes, and gives to the kernel by AF_XDP.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with,
        sockopt::{
            set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size, set_xdp_umem_reg,
            xdp_mmap_offsets,
        },
        xdp::{
            SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpRingFlags,
            XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
        },
    },
    time::{ClockId, clock_gettime},
};
use sallyport_packet_model::generate::{Due, End, Pace, Pacer, Stamp, write_frame};

use super::{
    Plan, Source,
    layout::{self, State},
    shared::Mapping,
};
use crate::{XdpError, error::pinned, kernel::Device};

/// Frames that can be under way, and the bytes that each has in the shared memory.
const FRAMES: u32 = 2_048;
const CHUNK: usize = 4_096;
/// Frames that are given to the kernel at once.
const BATCH: u32 = 64;
/// The fill ring, which a socket must have even where nothing is received.
const FILL: u32 = 64;
/// How long the kernel may take to free the queue of a socket that has ended, and how often it is asked.
const FREED: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);
/// How long the kernel may take for what is left at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// A ring of 2,048 entries.
#[derive(Debug)]
struct Ring {
    map: Mapping,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    entry_bytes: usize,
}

/// A socket with its memory.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    memory: Mapping,
    sending: Ring,
    completed: Ring,
    /// Chunks that nobody uses.
    free: Vec<u32>,
}

/// A sender on a queue.
#[derive(Debug)]
pub(super) struct XskSender {
    plan: Plan,
    socket: Mutex<Socket>,
    times: Vec<u64>,
    period: u64,
    longest: u64,
    /// What the thread tells others, and what they tell it.
    state: Mutex<State>,
    pace: Mutex<Pace>,
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

impl Ring {
    fn new(fd: &OwnedFd, page: u64, offsets: XdpRingOffset, entry_bytes: usize) -> Result<Self, Errno> {
        let entries = offsets.desc as usize;
        let map = Mapping::of_socket(fd.as_fd(), entries + FRAMES as usize * entry_bytes, page)?;
        let [producer, consumer] = [offsets.producer, offsets.consumer].map(|offset| offset as usize);
        Ok(Self { map, producer, consumer, flags: offsets.flags.map(|offset| offset as usize), entries, entry_bytes })
    }

    fn place(&self, number: u32) -> usize {
        self.entries + (number % FRAMES) as usize * self.entry_bytes
    }

    fn produced(&self) -> u32 {
        self.map.word(self.producer).load(Ordering::Acquire)
    }

    fn consumed(&self) -> u32 {
        self.map.word(self.consumer).load(Ordering::Acquire)
    }

    fn is_asleep(&self) -> bool {
        self.flags.is_none_or(|flags| {
            self.map.word(flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        })
    }
}

impl Socket {
    fn open(device: &Device, queue: u32) -> Result<Self, XdpError> {
        let failed = |what: &str| {
            let what = format!("{what} for AF_XDP");
            |error: Errno| pinned(what)(error.into())
        };
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(failed("open a socket"))?;
        let bytes = FRAMES as usize * CHUNK;
        let memory = Mapping::anonymous(bytes).map_err(failed("get memory"))?;
        let registered = XdpUmemReg {
            addr: memory.address(),
            len: bytes as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, registered).map_err(failed("share memory"))?;
        set_xdp_umem_fill_ring_size(&fd, FILL)
            .and_then(|()| set_xdp_umem_completion_ring_size(&fd, FRAMES))
            .and_then(|()| set_xdp_tx_ring_size(&fd, FRAMES))
            .map_err(failed("make rings"))?;
        let offsets = xdp_mmap_offsets(&fd).map_err(failed("find the rings"))?;
        let sending = Ring::new(&fd, XDP_PGOFF_TX_RING, offsets.tx, 16).map_err(failed("map a ring"))?;
        let completed = Ring::new(&fd, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, 8).map_err(failed("map a ring"))?;
        // The kernel takes zero copy where the driver has it, and copies otherwise.
        let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, device.index, queue);
        let end = Instant::now() + FREED;
        loop {
            match bind(&fd, &address) {
                Ok(()) => break,
                // The kernel frees the queue of a socket some time after its end.
                Err(Errno::BUSY) if Instant::now() < end => thread::sleep(LOOK),
                Err(Errno::BUSY) => return Err(XdpError::QueueBusy { device: device.name.clone(), queue }),
                Err(Errno::INVAL) => return Err(XdpError::NoQueue { device: device.name.clone(), queue }),
                Err(error) => return Err(failed(&format!("take a queue of {}", device.name))(error)),
            }
        }
        Ok(Self { fd, memory, sending, completed, free: (0..FRAMES).collect() })
    }

    /// Takes back the chunks of frames that are sent.
    fn reclaim(&mut self) {
        let (produced, mut consumed) = (self.completed.produced(), self.completed.consumed());
        while consumed != produced {
            let address = self.completed.map.long(self.completed.place(consumed));
            // No more than there are: what the kernel tells is bounded, too.
            if self.free.len() < FRAMES as usize {
                self.free.push((address / CHUNK as u64) as u32 % FRAMES);
            }
            consumed = consumed.wrapping_add(1);
        }
        self.completed.map.word(self.completed.consumer).store(consumed, Ordering::Release);
    }

    /// Puts a frame into the chunk and into the ring; the kernel sees it by `publish`.
    fn put(&mut self, chunk: u32, number: u32, frame: &[u8]) {
        let address = chunk as usize * CHUNK;
        self.memory.write(address, frame);
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&(address as u64).to_ne_bytes());
        entry[8..12].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        let place = self.sending.place(number);
        self.sending.map.write(place, &entry);
    }

    fn publish(&self, number: u32) {
        self.sending.map.word(self.sending.producer).store(number, Ordering::Release);
    }

    /// Has the kernel send what is in the ring.
    fn kick(&self) -> Result<(), Errno> {
        if !self.sending.is_asleep() {
            return Ok(());
        }
        match send(&self.fd, &[], SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl XskSender {
    pub(super) fn open(plan: Plan, device: &Device, queue: u32) -> Result<Self, XdpError> {
        let socket = Mutex::new(Socket::open(device, queue)?);
        let (times, period) = match (&plan.source, plan.speed) {
            (Source::Records(recording), Some(speed)) => (recording.scaled(speed), recording.period(speed)),
            _ => (Vec::new(), 0),
        };
        let (pace, longest) = (Mutex::new(plan.pace), layout::longest(&plan.source) as u64);
        Ok(Self { plan, socket, times, period, longest, state: Mutex::default(), pace })
    }

    pub(super) fn state(&self) -> State {
        self.state.lock().map(|state| *state).unwrap_or_default()
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        self.pace.lock().map(|mut place| *place = pace).unwrap_or_default();
    }

    fn tell(&self, pacer: &Pacer, is_done: bool) {
        let Pacer { start, sent, bytes, last, .. } = *pacer;
        let state = State { start: start.unwrap_or_default(), sent, bytes, last, is_done };
        self.state.lock().map(|mut place| *place = state).unwrap_or_default();
    }

    /// Sends until the plan is done or `is_stopped` is so.
    pub(super) fn send(&self, is_stopped: &AtomicBool) -> Result<(), XdpError> {
        let Ok(mut socket) = self.socket.lock() else { return Ok(()) };
        let failed = |error: Errno| pinned("send by AF_XDP")(error.into());
        let mut cursor = Cursor::default();
        let mut pacer = Pacer::default();
        let mut number = socket.sending.produced();
        let mut is_done = false;
        while !is_done && !is_stopped.load(Ordering::Relaxed) {
            socket.reclaim();
            let pace = self.pace.lock().map(|pace| *pace).unwrap_or_default();
            for _ in 0..BATCH {
                let time = now();
                match self.due(&mut pacer, &cursor, pace, time) {
                    Due::Now => {}
                    Due::Later => break,
                    Due::Never => {
                        is_done = true;
                        break;
                    }
                }
                let Some(chunk) = socket.free.pop() else { break };
                self.next_frame(&mut cursor, pacer.sent, time);
                socket.put(chunk, number, &cursor.frame);
                number = number.wrapping_add(1);
                pacer.count(time, pace, cursor.frame.len() as u64);
            }
            socket.publish(number);
            if socket.sending.consumed() != number {
                socket.kick().map_err(failed)?;
            }
            self.tell(&pacer, false);
        }
        // What the kernel has not taken by then was not sent.
        let end = Instant::now() + DRAIN;
        while socket.sending.consumed() != number && Instant::now() < end {
            socket.reclaim();
            socket.kick().map_err(failed)?;
        }
        pacer.sent -= u64::from(number.wrapping_sub(socket.sending.consumed())).min(pacer.sent);
        self.tell(&pacer, is_done);
        Ok(())
    }

    fn due(&self, pacer: &mut Pacer, cursor: &Cursor, pace: Pace, time: u64) -> Due {
        let end = End { count: self.plan.count, duration: self.plan.duration.map(layout::nanoseconds) };
        let due = pacer.due(time, end, pace, self.longest);
        let at = self.times.get(cursor.slot).map_or(0, |at| cursor.base.saturating_add(*at));
        if due == Due::Now && pacer.elapsed(time) < at { Due::Later } else { due }
    }

    /// Makes the next frame.
    fn next_frame(&self, cursor: &mut Cursor, number: u64, time: u64) {
        let count = match &self.plan.source {
            Source::Traffic(traffic) => {
                let sizes = traffic.sizes.sizes();
                let size = sizes.get(cursor.slot).map_or(0, |size| usize::from(*size)).saturating_sub(4);
                let stamp = Stamp { run: self.plan.run, number, time };
                let macs = self.plan.macs.unwrap_or_default();
                write_frame(traffic, macs, size, cursor.flow, stamp, &mut cursor.frame);
                let next = u64::from(cursor.flow) + u64::from(traffic.step);
                cursor.flow = (next % u64::from(traffic.flows.max(1))) as u32;
                sizes.len()
            }
            Source::Records(recording) => {
                cursor.frame.clear();
                cursor.frame.extend(recording.frames.get(cursor.slot).into_iter().flatten());
                if let (Some((from, to)), Some(head)) = (self.plan.macs, cursor.frame.get_mut(..12)) {
                    head[..6].copy_from_slice(&to);
                    head[6..].copy_from_slice(&from);
                }
                recording.frames.len()
            }
        };
        cursor.slot += 1;
        if cursor.slot >= count {
            cursor.slot = 0;
            cursor.base = cursor.base.saturating_add(self.period);
        }
    }
}

/// What comes next.
#[derive(Debug, Default)]
struct Cursor {
    flow: u32,
    /// Of sizes, or of frames of a file.
    slot: usize,
    /// When this pass through a file began.
    base: u64,
    frame: Vec<u8>,
}
