//! What becomes of packets, one by one: the reader of packet/bpf/dump.h.

use std::{
    cell::RefCell,
    fmt, fs,
    os::fd::{AsFd as _, AsRawFd as _},
    rc::Rc,
    time::Duration,
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder, libbpf_sys};

use crate::{
    Reason, Router, XdpError,
    error::{asked, pinned, require_root},
    object,
};

/// The most bytes of a frame that are kept: `DUMP_SNAP`.
pub const MAX_SNAP_BYTES: u32 = 4096;
/// The bytes of the beginning of a frame as it came: `DUMP_HEAD`.
const HEAD_BYTES: usize = 128;
/// The bytes of `struct dump_record` before the frames.
const RECORD_BYTES: usize = 32;
/// How long the program goes on without news from the reader. The reader renews more often.
const LEASE: Duration = Duration::from_secs(3);
/// The folder among the pins that the one look has locked; it goes with the pins.
pub(crate) const LOCK: &str = "dump";
/// The only key of the maps.
const KEY: [u8; 4] = [0; 4];

/// What is looked at.
#[derive(Debug, Clone)]
pub struct Look {
    /// The reasons.
    pub reasons: Vec<Reason>,
    /// The most bytes of a frame, up to [`MAX_SNAP_BYTES`].
    pub snap_bytes: u32,
    /// One packet of so many.
    pub sample: u32,
    /// The bytes of the ring between the kernel and the reader: a power of two, and whole pages.
    pub ring_bytes: u32,
    /// The port or VLAN on either side.
    pub device: Option<u32>,
}

/// What became of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The monotonic clock of the kernel.
    pub time: Duration,
    /// The port or VLAN that it came by.
    pub from: u32,
    /// The port or VLAN that it left by.
    pub to: Option<u32>,
    /// Why.
    pub reason: Reason,
    /// The frame as it came.
    pub before: Frame,
    /// The frame as it left, or as it was when it was dropped.
    pub after: Frame,
}

/// A frame, of which the end may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The bytes that were kept.
    pub bytes: Vec<u8>,
    /// The length on the wire.
    pub length: u32,
}

/// A look at the packets of a router. It ends with the process, at the latest some seconds after.
pub struct Dump {
    look: Look,
    control: MapHandle,
    rings: MapHandle,
    lost: MapHandle,
    lost_before: u64,
    /// Read before the map below it is closed.
    reader: RingBuffer<'static>,
    records: Rc<RefCell<Vec<Record>>>,
    _ring: MapHandle,
    /// One look at a time.
    _lock: fs::File,
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dump").field("look", &self.look).finish_non_exhaustive()
    }
}

impl Router {
    /// Looks at packets from now on.
    ///
    /// # Errors
    /// No router stands, or another process looks.
    pub fn dump(&self, look: Look) -> Result<Dump, XdpError> {
        require_root()?;
        let control = object::map(self.pins(), "dump_control")?;
        let rings = object::map(self.pins(), "dump_rings")?;
        let lost = object::map(self.pins(), "dump_lost")?;
        let folder = self.pins().join(LOCK);
        let locked = || pinned(format!("lock {}", folder.display()));
        fs::create_dir_all(&folder).map_err(locked())?;
        let lock = fs::File::open(&folder).map_err(locked())?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| XdpError::DumpBusy)?;
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let ring = MapHandle::create(MapType::RingBuf, Some("dump_ring"), 0, 0, look.ring_bytes, &options);
        let ring = ring.map_err(asked("make the ring of packets"))?;
        let records = Rc::new(RefCell::new(Vec::new()));
        let reader = {
            let records = Rc::clone(&records);
            let mut builder = RingBufferBuilder::new();
            let added = builder.add(&ring, move |bytes| {
                records.borrow_mut().extend(Record::of_bytes(bytes));
                0
            });
            added.map_err(asked("read the ring of packets"))?;
            builder.build().map_err(asked("read the ring of packets"))?
        };
        let lost_before = sum(&lost)?;
        let ring_fd = ring.as_fd().as_raw_fd().to_ne_bytes();
        rings.update(&KEY, &ring_fd, MapFlags::ANY).map_err(asked("hand the ring to the program"))?;
        let dump = Dump { look, control, rings, lost, lost_before, reader, records, _ring: ring, _lock: lock };
        dump.renew()?;
        Ok(dump)
    }
}

impl Dump {
    /// Tells the program that this process still looks. Called each second, or more often.
    ///
    /// # Errors
    /// The map is gone.
    pub fn renew(&self) -> Result<(), XdpError> {
        self.write(now().saturating_add(LEASE))
    }

    /// The packets that came since the last call: at most so many, and fewer only if there were fewer.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&self, most: usize) -> Result<Vec<Record>, XdpError> {
        let read = self.reader.consume_raw_n(most);
        if read < 0 {
            let source = libbpf_rs::Error::from_raw_os_error(-read);
            return Err(asked("read the ring of packets")(source));
        }
        Ok(std::mem::take(&mut *self.records.borrow_mut()))
    }

    /// How many packets had no room in the ring.
    ///
    /// # Errors
    /// The map is gone.
    pub fn lost(&self) -> Result<u64, XdpError> {
        Ok(sum(&self.lost)?.wrapping_sub(self.lost_before))
    }

    /// Tells the program that nobody looks. Packets in the ring can still be read.
    ///
    /// # Errors
    /// The map is gone.
    pub fn stop(&self) -> Result<(), XdpError> {
        self.write(Duration::ZERO)?;
        // The ring stays as long as this process has it.
        drop(self.rings.delete(&KEY));
        Ok(())
    }

    /// Writes `struct dump_control`.
    fn write(&self, until: Duration) -> Result<(), XdpError> {
        let reasons = self.look.reasons.iter().fold(0_u64, |mask, reason| mask | 1 << *reason as u64);
        let mut bytes = Vec::with_capacity(32);
        bytes.extend((until.as_nanos() as u64).to_ne_bytes());
        bytes.extend(reasons.to_ne_bytes());
        bytes.extend(self.look.snap_bytes.clamp(1, MAX_SNAP_BYTES).to_ne_bytes());
        bytes.extend(self.look.sample.to_ne_bytes());
        bytes.extend(self.look.device.unwrap_or_default().to_ne_bytes());
        bytes.extend([0; 4]);
        self.control.update(&KEY, &bytes, MapFlags::ANY).map_err(asked("switch the look at packets"))
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// The monotonic clock, which the kernel stamps packets by.
#[must_use]
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The sum of all processors.
fn sum(map: &MapHandle) -> Result<u64, XdpError> {
    let found = map.lookup_percpu(&KEY, MapFlags::ANY).map_err(asked("read the number of lost packets"))?;
    let numbers = found.unwrap_or_default();
    Ok(numbers.iter().filter_map(|cpu| Some(u64::from_ne_bytes(cpu.get(..8)?.try_into().ok()?))).sum())
}

impl Record {
    /// Reads `struct dump_record`.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let time = Duration::from_nanos(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?));
        let (came, left) = (word(16)?, word(20)?);
        let head = bytes.get(RECORD_BYTES..RECORD_BYTES + usize::from(half(26)?))?;
        let start = RECORD_BYTES + HEAD_BYTES;
        let after = bytes.get(start..start + word(28)? as usize)?;
        // Behind the head both frames are the same; the room of a tag may have moved them.
        let mut before = head.to_vec();
        let behind = (head.len() as u32).checked_add(left)?.checked_sub(came);
        before.extend(behind.and_then(|at| after.get(at as usize..)).unwrap_or_default());
        if (after.len() as u32) < left {
            before.truncate(after.len());
        }
        Some(Self {
            time,
            from: word(8)?,
            to: word(12).filter(|index| *index != 0),
            reason: Reason::of(usize::from(half(24)?))?,
            before: Frame { bytes: before, length: came },
            after: Frame { bytes: after.to_vec(), length: left },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a frame that lost a tag of four bytes.
    fn record(came: &[u8], left: &[u8], captured: usize) -> Vec<u8> {
        let head = came.len().min(HEAD_BYTES);
        let mut bytes = 7_u64.to_ne_bytes().to_vec();
        for word in [3, 0, came.len() as u32, left.len() as u32] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend((Reason::Urpf as u16).to_ne_bytes());
        bytes.extend((head as u16).to_ne_bytes());
        bytes.extend((captured as u32).to_ne_bytes());
        bytes.extend(&came[..head]);
        bytes.resize(RECORD_BYTES + HEAD_BYTES, 0);
        bytes.extend(&left[..captured]);
        bytes
    }

    #[test]
    fn both_frames_are_whole_where_only_the_head_was_kept() {
        let came: Vec<u8> = (0..200).collect();
        let left = [&came[..12], &came[16..]].concat();
        let read = Record::of_bytes(&record(&came, &left, left.len())).unwrap();
        assert_eq!((read.time.as_nanos(), read.from, read.to, read.reason), (7, 3, None, Reason::Urpf));
        assert_eq!((read.before.bytes, read.before.length), (came.clone(), 200));
        assert_eq!((read.after.bytes, read.after.length), (left.clone(), 196));
        let same = Record::of_bytes(&record(&came, &came, 200)).unwrap();
        assert_eq!((same.before.bytes, same.after.bytes), (came.clone(), came.clone()));
        let cut = Record::of_bytes(&record(&came, &left, 60)).unwrap();
        assert_eq!((cut.before.bytes.len(), cut.after.bytes.len()), (60, 60));
        let whole = record(&came, &left, 60);
        for length in 0..whole.len() {
            assert_eq!(Record::of_bytes(&whole[..length]), None, "{length} bytes");
        }
    }
}
