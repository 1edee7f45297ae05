//! The limit of open files of a program.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. The default soft limit is low for the sake of select(2); an
/// edge and a connector need a descriptor for each connection. If the system refuses, the limit stays.
pub fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Makes the kernel allocate a table for this many descriptors while the process has one thread. In a process with
/// several threads the kernel doubles the table only after an RCU grace period, during which the thread that opens a
/// descriptor waits: 5 to 20 ms, at 64 descriptors, at 128, and so on. A descriptor takes eight bytes.
pub fn make_room(count: i32) {
    let bound = getrlimit(Resource::Nofile).current.and_then(|bound| i32::try_from(bound).ok());
    let last = bound.map_or(count, |bound| bound.min(count)) - 1;
    // On failure the table grows when needed.
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last));
}
