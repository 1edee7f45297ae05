//! Memory and processor time of this process (proc(5), `/proc/self/stat`).

use rustix::param::{clock_ticks_per_second, page_size};

/// The memory of this process in bytes, and its CPU time in milliseconds. The kernel generates the file, so reading it
/// does not wait for a disk.
#[must_use]
pub fn process_figures() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (pages, ticks) = read(&stat)?;
    let memory = pages.checked_mul(u64::try_from(page_size()).ok()?)?;
    Some((memory, ticks.checked_mul(1_000)? / clock_ticks_per_second().max(1)))
}

/// Pages in memory, and clock ticks.
fn read(stat: &str) -> Option<(u64, u64)> {
    // The name of the program is in parentheses, and may hold any other character.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    // Fields are counted from 1, and the third is the first one here: utime 14, stime 15, rss 24.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((number(24)?, number(14)?.checked_add(number(15)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_this_process_takes() {
        let (memory, _) = process_figures().unwrap();
        assert!((100_000..1 << 40).contains(&memory), "{memory}");
        let stat = "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 250 50 0 0 20 0 9 0 77 1000000 300 18446744073709551615 1";
        assert_eq!(read(stat), Some((300, 300)));
        assert_eq!((read("7 (a"), read("7 (a) S 1")), (None, None));
    }
}
