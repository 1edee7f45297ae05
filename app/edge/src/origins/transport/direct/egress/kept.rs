//! What is known of leases after a restart.
//!
//! The file has the time since the boot of the machine, which no clock setting changes. After another boot the file is
//! not used, and the edge waits for leases that begin from then on.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use sallyport_ports::HolderRecord;
use serde::{Deserialize, Serialize};

/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UPTIME: &str = "/proc/uptime";

#[derive(Serialize, Deserialize)]
struct Kept {
    boot: String,
    /// When the last acknowledged beat was sent, since the boot.
    renewed_ms: u64,
    record: HolderRecord,
}

/// The time since the boot.
fn uptime() -> io::Result<Duration> {
    let text = fs::read_to_string(UPTIME)?;
    let seconds = text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Writes the record to a new file, and puts it in the place of the former one.
pub(super) fn write(file: &Path, record: HolderRecord, renewed: Instant, now: Instant) -> io::Result<()> {
    let since_boot = uptime()?.saturating_sub(now.saturating_duration_since(renewed));
    let renewed_ms = u64::try_from(since_boot.as_millis()).unwrap_or(u64::MAX);
    let kept = Kept { boot: fs::read_to_string(BOOT_ID)?, renewed_ms, record };
    let draft = file.with_extension("new");
    fs::write(&draft, serde_json::to_vec(&kept)?)?;
    fs::rename(draft, file)
}

/// What the former process knew, if the machine has not started anew.
pub(super) fn read(file: &Path, now: Instant) -> Option<(HolderRecord, Instant)> {
    let is_small = fs::metadata(file).is_ok_and(|known| known.len() <= MAX_FILE_BYTES);
    let bytes = is_small.then(|| fs::read(file).ok()).flatten()?;
    let kept: Kept = serde_json::from_slice(&bytes).ok()?;
    let is_same_boot = fs::read_to_string(BOOT_ID).is_ok_and(|boot| boot == kept.boot);
    let ago = uptime().ok()?.checked_sub(Duration::from_millis(kept.renewed_ms))?;
    is_same_boot.then(|| now.checked_sub(ago)).flatten().map(|renewed| (kept.record, renewed))
}

#[cfg(test)]
mod tests {
    use sallyport_ports::Slice;

    use super::*;

    #[test]
    fn the_next_process_knows_how_old_the_last_beat_is_unless_the_machine_has_started_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("egress.json");
        assert_eq!(read(&file, Instant::now()), None);
        let record = HolderRecord { closed: vec![(("198.51.100.7".parse().unwrap(), Slice::try_from(3).unwrap()), 7)] };
        let now = Instant::now();
        write(&file, record.clone(), now, now).unwrap();
        let later = now + Duration::from_secs(1);
        let (read_back, renewed) = read(&file, later).unwrap();
        assert_eq!(read_back, record);
        assert!(later.duration_since(renewed) < Duration::from_secs(60), "the beat was just now");
        let text = fs::read_to_string(&file).unwrap();
        let boot = fs::read_to_string(BOOT_ID).unwrap();
        fs::write(&file, text.replace(boot.trim(), "another boot")).unwrap();
        assert_eq!(read(&file, now), None);
        fs::write(&file, "{").unwrap();
        assert_eq!(read(&file, now), None);
    }
}
