//! How long a thread keeps a processor that others wait for.

use std::{io, time::Duration};

/// How long at a time, instead of the kernel's 1 to 3 ms.
const TURN: Duration = Duration::from_micros(500);

/// Asks the kernel for short turns, for the calling thread and those that are started from it: who has short turns is let
/// in soon when there is something to do, and lets others in soon. Whoever carries what others wait for wants both. The
/// share of the processors stays what it was. Kernels before Linux 6.12 take no notice, and other systems have no such
/// thing.
///
/// # Errors
/// The kernel, or who guards it, does not allow it; everything goes on as it was.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no crate that is used here has sched_setattr(2)")]
pub fn take_short_turns() -> io::Result<()> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    // SAFETY: it is made of integers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than `SIZE` bytes to where the pointer points, and 0 is the calling thread.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // With a policy for real time (sched(7)) the same field means something else.
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attributes.sched_runtime = TURN.as_nanos() as u64;
    // SAFETY: the kernel reads `size` bytes, which it has filled in itself; all but one field are what it has just said.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Other systems have no such thing.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn take_short_turns() -> io::Result<()> {
    let _ = TURN;
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "as above")]
    fn attributes() -> libc::sched_attr {
        // SAFETY: as above.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>();
        // SAFETY: as above.
        let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert_eq!(outcome, 0);
        attributes
    }

    #[test]
    fn turns_are_short_in_threads_that_are_started_then_and_nothing_else_changes() {
        // In a thread of its own, which leaves the others as they are.
        let (before, after, later) = std::thread::spawn(|| {
            let before = attributes();
            take_short_turns().unwrap();
            (before, attributes(), std::thread::spawn(attributes).join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        if before.sched_runtime == 0 {
            eprintln!("skipped: this kernel (before Linux 6.12) does not say how long turns are");
            return;
        }
        assert_eq!(u128::from(after.sched_runtime), TURN.as_nanos());
        assert_eq!(later.sched_runtime, after.sched_runtime);
    }
}
