//! The limit of open files and connections of a program.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft bound on open files to the hard one. The soft bound is low only for programs that use select(2); an
/// edge and a connector need a descriptor for each connection. Where the system refuses, the bound stays as it is.
pub fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Has the kernel make room for so many descriptors while there is one thread. The kernel doubles the table of a
/// process that has several threads only after a grace period of RCU. The thread that wants a descriptor stands still
/// meanwhile: 5 to 20 ms, at 64 descriptors, at 128, and so on. A descriptor takes eight bytes.
pub fn make_room(count: i32) {
    let bound = getrlimit(Resource::Nofile).current.and_then(|bound| i32::try_from(bound).ok());
    let last = bound.map_or(count, |bound| bound.min(count)) - 1;
    // Where it cannot, the room grows when it is needed.
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last));
}
