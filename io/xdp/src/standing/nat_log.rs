//! The log of sessions: the reader of `nat_log`.

use std::{cell::RefCell, fmt, fs, net::SocketAddrV4, rc::Rc, time::Duration};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use rustix::fs::{FlockOperation, flock};
use sallyport_packet_model::nat::Endpoint;

use super::nat::peer_of;
use crate::{
    Router, XdpError, dump,
    error::{asked, pinned},
    nat::{KEY, LOCK, end_of},
    pins,
};

/// How long the program goes on without news from the reader. The reader renews more often.
const LEASE: Duration = Duration::from_secs(3);

/// A line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine {
    /// When it was, by the monotonic clock.
    pub time: Duration,
    /// How long the session was; of a new one 0.
    pub age: Duration,
    /// Whether the session ended; otherwise it began.
    pub is_end: bool,
    /// Whether the inside began it.
    pub is_outbound: bool,
    /// The end inside.
    pub inside: Endpoint,
    /// The same end as peers see it.
    pub external: Endpoint,
    /// The peer.
    pub remote: SocketAddrV4,
}

/// The log of the sessions of a router, while it is read.
pub struct NatLog {
    state: MapHandle,
    lease: MapHandle,
    lost_before: u64,
    reader: RingBuffer<'static>,
    lines: Rc<RefCell<Vec<LogLine>>>,
    _ring: MapHandle,
    /// A folder, locked: one reader at a time.
    _lock: fs::File,
}

impl fmt::Debug for NatLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatLog").finish_non_exhaustive()
    }
}

impl Router {
    /// Reads the log of sessions from now on.
    ///
    /// # Errors
    /// No router stands, it has no NAT with tables, or another process reads.
    pub fn nat_log(&self) -> Result<NatLog, XdpError> {
        self.require_tables()?;
        let state = pins::map(self.pins(), "nat_state")?;
        let ring = pins::map(self.pins(), "nat_log")?;
        let lease = pins::map(self.pins(), "nat_lease")?;
        // `packet dump` locks the folder of the router, so the log has one of its own.
        let folder = self.pins().join(LOCK);
        drop(fs::create_dir(&folder));
        let lock = fs::File::open(&folder).map_err(pinned(format!("open {}", folder.display())))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| XdpError::NatLogBusy)?;
        let lines = Rc::new(RefCell::new(Vec::new()));
        let reader = {
            let lines = Rc::clone(&lines);
            let mut builder = RingBufferBuilder::new();
            let added = builder.add(&ring, move |bytes| {
                lines.borrow_mut().extend(LogLine::of_bytes(bytes));
                0
            });
            added.map_err(asked("read the log of sessions"))?;
            builder.build().map_err(asked("read the log of sessions"))?
        };
        let mut log = NatLog { state, lease, lost_before: 0, reader, lines, _ring: ring, _lock: lock };
        // What a former reader has left is old.
        log.read()?;
        log.lost_before = log.lost_ever()?;
        log.renew()?;
        Ok(log)
    }
}

impl NatLog {
    /// Tells the program that this process still reads. Called each second, or more often.
    ///
    /// # Errors
    /// The map is gone.
    pub fn renew(&self) -> Result<(), XdpError> {
        self.write(dump::now().saturating_add(LEASE))
    }

    /// The lines since the last call.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn read(&self) -> Result<Vec<LogLine>, XdpError> {
        self.reader.consume().map_err(asked("read the log of sessions"))?;
        Ok(std::mem::take(&mut *self.lines.borrow_mut()))
    }

    /// How many lines had no room.
    ///
    /// # Errors
    /// The map is gone.
    pub fn lost(&self) -> Result<u64, XdpError> {
        Ok(self.lost_ever()?.wrapping_sub(self.lost_before))
    }

    /// How many lines had no room since the NAT stands.
    fn lost_ever(&self) -> Result<u64, XdpError> {
        let bytes = self.state.lookup(&KEY, MapFlags::ANY).map_err(asked("read the numbers of the NAT"))?;
        let lost = bytes.and_then(|bytes| Some(u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?)));
        Ok(lost.unwrap_or_default())
    }

    /// Writes the end of the lease, which has a map of its own.
    fn write(&self, until: Duration) -> Result<(), XdpError> {
        let bytes = (until.as_nanos() as u64).to_ne_bytes();
        self.lease.update(&KEY, &bytes, MapFlags::ANY).map_err(asked("switch the log of sessions"))
    }
}

impl Drop for NatLog {
    fn drop(&mut self) {
        drop(self.write(Duration::ZERO));
    }
}

impl LogLine {
    /// Reads `struct nat_record`.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (time, began) = (Duration::from_nanos(long(0)?), Duration::from_nanos(long(8)?));
        Some(Self {
            time,
            age: time.saturating_sub(began),
            is_end: *bytes.get(38)? != 0,
            is_outbound: *bytes.get(39)? != 0,
            inside: end_of(bytes.get(16..24)?)?,
            external: end_of(bytes.get(24..32)?)?,
            remote: peer_of(bytes.get(32..38)?)?,
        })
    }
}
