//! How long a thread keeps a processor that others wait for.

use std::{io, time::Duration};

/// How long at a time. The kernel's own turns are 0.7 ms with one processor, 1.4 with two, and up to 3 with many.
const TURN: Duration = Duration::from_micros(500);

/// Asks the kernel for short turns, for the calling thread and all threads and programs that are started from it: who
/// has short turns is let in soon when there is something to do, and lets others in soon. Whoever carries what others
/// wait for wants both. The share of the processors stays what it was. Kernels before Linux 6.12 take no notice, and
/// other systems have no such thing. The length that somebody chose before (`chrt --sched-runtime`) cannot be told from
/// the kernel's own, and is replaced.
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
    // With a policy for real time (sched(7)) the same field means something else, and with the idle one nothing.
    if !has_turns(&attributes) {
        return Ok(());
    }
    attributes.sched_runtime = TURN.as_nanos() as u64;
    // SAFETY: the kernel reads `size` bytes, which it has filled in itself; all but one field are what it has just
    // said.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the policy shares the processors by turns.
#[cfg(target_os = "linux")]
fn has_turns(attributes: &libc::sched_attr) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH].iter().any(|policy| attributes.sched_policy == *policy as u32)
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
        let (before, taken, after, later) = std::thread::spawn(|| {
            let (before, taken) = (attributes(), take_short_turns());
            (before, taken, attributes(), std::thread::spawn(attributes).join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        if let Err(error) = taken {
            eprintln!("skipped: short turns may not be asked for here: {error}");
            return;
        }
        if before.sched_runtime == 0 || !has_turns(&before) {
            eprintln!(
                "skipped: turns have no length here (a kernel before Linux 6.12, or another policy than that of most)"
            );
            return;
        }
        assert_eq!(u128::from(after.sched_runtime), TURN.as_nanos());
        assert_eq!(later.sched_runtime, after.sched_runtime);
    }
}
