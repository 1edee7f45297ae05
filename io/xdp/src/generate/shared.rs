//! Memory that the kernel and this process share: the only module with `unsafe` code (docs/adr/0082-packet-path.md).
//!
//! Each access is checked against the length of the mapping, so callers need no care.
#![allow(unsafe_code)]

use std::{
    ffi::c_void,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::atomic::AtomicU32,
};

use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
};

/// A mapping. Its end unmaps it.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Words are atomic, and `write` is of one thread at a time,
// for it takes the mapping as its own.
unsafe impl Send for Mapping {}
// SAFETY: as above: what is reached by `&self` is atomic, or read only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of this process, in whole pages.
    pub(super) fn anonymous(bytes: usize) -> Result<Self, Errno> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: the kernel chooses a free place, so no memory of others is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, prot, flags) }?;
        Self::of_pointer(start, bytes)
    }

    /// Memory of the kernel behind this socket.
    pub(super) fn of_socket(socket: BorrowedFd<'_>, bytes: usize, offset: u64) -> Result<Self, Errno> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: as above. A ring of AF_XDP keeps its size as long as it is mapped.
        let start = unsafe { mmap(ptr::null_mut(), bytes, prot, flags, socket, offset) }?;
        Self::of_pointer(start, bytes)
    }

    fn of_pointer(start: *mut c_void, bytes: usize) -> Result<Self, Errno> {
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, bytes })
    }

    /// Where it is, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// A pointer to so many bytes from the offset on, which are all within.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{offset} is not within the mapping");
        // SAFETY: the offset is within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// A word that the kernel reads and writes, too.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "{offset} is not that of a word");
        // SAFETY: the word is within the mapping, which is page-aligned, and lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Writes bytes. The kernel does not write there.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: the bytes are within the mapping, which no slice of Rust can overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) }
    }

    /// Reads eight bytes.
    pub(super) fn long(&self, offset: usize) -> u64 {
        // SAFETY: the bytes are within the mapping; the kernel wrote them before it moved its counter.
        unsafe { ptr::read_unaligned(self.at(offset, 8).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing of the mapping is borrowed any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
