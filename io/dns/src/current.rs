//! What is served now, and how threads get it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::{Mutex, RwLock};
use sallyport_zone::{Now, Serving, Settings, View, Zones};

/// The zones, the view and the settings of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) zones: Arc<Zones>,
    pub(crate) view: Arc<View>,
    pub(crate) settings: Arc<Settings>,
}

impl Snapshot {
    pub(crate) fn serving(&self) -> Serving<'_> {
        Serving { zones: &self.zones, view: &self.view, settings: &self.settings }
    }
}

/// What is served now.
#[derive(Debug, Default)]
pub(crate) struct Current {
    snapshot: RwLock<Snapshot>,
    /// What was served before. It is freed with the next change, and not by a thread that answers.
    former: Mutex<Snapshot>,
    /// Grows with each change, after it.
    version: AtomicU64,
}

impl Current {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self { snapshot: RwLock::new(snapshot), former: Mutex::default(), version: AtomicU64::new(0) }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut snapshot = self.snapshot.write();
        let former = snapshot.clone();
        change(&mut snapshot);
        self.version.fetch_add(1, Ordering::Release);
        drop(snapshot);
        *self.former.lock() = former;
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot.read().clone()
    }
}

/// A thread's copy of what is served.
#[derive(Debug)]
pub(crate) struct Copy {
    current: Arc<Current>,
    version: u64,
    snapshot: Snapshot,
}

impl Copy {
    pub(crate) fn new(current: Arc<Current>) -> Self {
        let version = current.version.load(Ordering::Acquire);
        Self { version, snapshot: current.snapshot(), current }
    }

    /// Takes what is served now. The lock is taken only after a change.
    pub(crate) fn refresh(&mut self) {
        let version = self.current.version.load(Ordering::Acquire);
        if version != self.version {
            self.snapshot = self.current.snapshot();
            self.version = version;
        }
    }

    /// What was served at the last look.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// The time by both clocks.
pub(crate) fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { unix_seconds: since.as_secs(), monotonic: Instant::now() }
}
