//! What can go wrong.

/// Reason why sockets cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SockDiagError {
    /// The kernel does not answer.
    #[error("the kernel does not list TCP sockets: {0}")]
    NoList(#[source] std::io::Error),
    /// The user may not look into the process.
    #[error("process {0} is of another user: only its user and root can see its sockets")]
    NotAllowed(u32),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The files of the process cannot be read.
    #[error("the sockets of process {pid} cannot be read: {error}")]
    Unreadable {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        error: std::io::Error,
    },
}
