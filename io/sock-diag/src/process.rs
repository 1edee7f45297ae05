//! Which sockets a process has.

use std::{collections::HashSet, fs, io};

use crate::SockDiagError;

/// The inodes of the sockets that a process has open, TCP or not.
///
/// # Errors
/// There is no such process, or the user may not look into it.
pub fn socket_inodes(pid: u32) -> Result<HashSet<u32>, SockDiagError> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => SockDiagError::NoProcess(pid),
        io::ErrorKind::PermissionDenied => SockDiagError::NotAllowed(pid),
        _ => SockDiagError::Unreadable { pid, error },
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).map_err(refused)?;
    // A file that is closed meanwhile is no error.
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(links.filter_map(|link| inode(link.to_str()?)).collect())
}

/// The inode of a link such as `socket:[4711]`.
fn inode(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_sockets_have_inodes() {
        assert_eq!(inode("socket:[4711]"), Some(4_711));
        for other in ["/dev/null", "pipe:[4711]", "socket:[]", "socket:[x]", "socket:[1"] {
            assert_eq!(inode(other), None, "{other}");
        }
    }
}
