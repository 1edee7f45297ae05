//! Threads at a processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::XdpError;

/// A thread at one processor; its end frees it.
pub(super) struct Pinned(CpuSet);

impl Pinned {
    pub(super) fn to(processor: usize) -> Result<Self, XdpError> {
        let refused = |_| XdpError::NoProcessor(processor);
        let before = sched_getaffinity(None).map_err(refused)?;
        if processor >= CpuSet::MAX_CPU {
            return Err(XdpError::NoProcessor(processor));
        }
        let mut one = CpuSet::new();
        one.set(processor);
        sched_setaffinity(None, &one).map_err(refused)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The set is the one that the thread came with.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Whether this process may use each of the processors.
///
/// # Errors
/// One of them is not there, or not for this process.
pub fn check_processors(processors: &[usize]) -> Result<(), XdpError> {
    processors.iter().try_for_each(|processor| Pinned::to(*processor).map(drop))
}
