//! The quotas of an edge on its disk, for a restart while no control answers.
//!
//! Quotas end by the time since the machine started, which goes on while no process runs and never jumps. After a
//! restart of the machine, they are void.

use std::{fs, io, path::Path, time::Duration};

use sallyport_steer::report::AssignedQuota;
use serde::{Deserialize, Serialize};

/// The schema version written, and the only one read.
const SCHEMA: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UPTIME: &str = "/proc/uptime";

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    schema: u32,
    /// The id of the machine's run.
    boot: String,
    /// When the quotas end, in milliseconds since the machine started.
    until_ms: u64,
    /// How many edges the leader counted.
    edges: u32,
    quotas: Vec<AssignedQuota>,
}

/// The id of the machine's run, and the time since its start.
fn machine() -> io::Result<(String, Duration)> {
    let uptime = fs::read_to_string(UPTIME)?;
    let seconds = uptime.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.ok_or_else(|| io::Error::other("the uptime is no number"))?;
    Ok((fs::read_to_string(BOOT_ID)?.trim().to_owned(), seconds))
}

/// Writes quotas that are valid for this long.
///
/// # Errors
/// The file cannot be written; the former one stays.
pub(super) fn write(path: &Path, quotas: Vec<AssignedQuota>, edges: u32, valid_for: Duration) -> io::Result<()> {
    let (boot, uptime) = machine()?;
    let until_ms = u64::try_from((uptime + valid_for).as_millis()).unwrap_or(u64::MAX);
    let bytes = serde_json::to_vec(&Kept { schema: SCHEMA, boot, until_ms, edges, quotas })?;
    let draft = path.with_extension("new");
    fs::write(&draft, bytes)?;
    fs::rename(&draft, path)
}

/// The quotas that are still valid, how many edges the leader counted, and for how long. `None` without any.
pub(super) fn read(path: &Path) -> Option<(Vec<AssignedQuota>, u32, Duration)> {
    if fs::metadata(path).ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let kept: Kept = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let (boot, uptime) = machine().ok()?;
    let left = Duration::from_millis(kept.until_ms).checked_sub(uptime).filter(|left| !left.is_zero())?;
    (kept.schema == SCHEMA && kept.boot == boot).then_some((kept.quotas, kept.edges, left.min(sallyport_steer::TERM)))
}

#[cfg(test)]
mod tests {
    use sallyport_model::{SocketId, TunnelId};
    use sallyport_steer::report::Quota;

    use super::*;

    #[test]
    fn quotas_are_read_back_until_they_end_and_not_after_another_start_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quotas.json");
        assert!(read(&path).is_none());
        let quota = AssignedQuota {
            socket: SocketId::from_random([1; 16]),
            origin: TunnelId::from_random([2; 16]).into(),
            plan: 5,
            quota: Quota { rate: Some(9), connections: None },
        };
        write(&path, vec![quota], 3, Duration::from_secs(8)).unwrap();
        let (quotas, edges, left) = read(&path).unwrap();
        assert!(
            quotas == [quota] && edges == 3 && left > Duration::from_secs(6) && left <= Duration::from_secs(8),
            "{left:?}"
        );
        let text = fs::read_to_string(&path).unwrap();
        let (boot, _) = machine().unwrap();
        fs::write(&path, text.replace(&boot, "another")).unwrap();
        assert!(read(&path).is_none());
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(read(&path).is_none());
        write(&path, vec![quota], 3, Duration::ZERO).unwrap();
        assert!(read(&path).is_none());
    }
}
