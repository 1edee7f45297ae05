//! The machine of a measurement: what it is, and what others do on it.

use std::{
    fs,
    process::Command,
    time::{Instant, SystemTime},
};

use time::OffsetDateTime;

use super::frame::{Load, Machine, RunError};
use crate::kernel;

/// A program of the system that a measurement needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// The option that prints its version.
    pub version: &'static str,
    /// How to get it.
    pub how: &'static str,
}

impl Tool {
    /// The first line of its version.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn version(&self) -> Result<String, RunError> {
        let missing = || RunError::Missing { what: self.program.to_owned(), how: self.how };
        let printed = kernel::run(Command::new(self.program).arg(self.version), "").map_err(|_| missing())?;
        Ok(printed.lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// This machine, and the versions of these tools where they are there.
pub(super) fn machine(tools: &[Tool]) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let own = format!("sallyport-lab {} ({build} build)", env!("CARGO_PKG_VERSION"));
    Machine {
        date: OffsetDateTime::from(SystemTime::now()).date().to_string(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        processor: model.map_or("unknown processor", |(_, model)| model).to_owned(),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        versions: std::iter::once(own).chain(tools.iter().filter_map(|tool| tool.version().ok())).collect(),
    }
}

/// Reads how much processor time others have used, from `/proc/stat` and `/proc/self/stat`.
///
/// Interrupts count for nobody, since those of a measurement's own packets are among them. What a hypervisor gave to
/// other machines counts for others.
pub(super) fn others() -> impl FnMut() -> Load {
    let began = Instant::now();
    let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    move || {
        let all = busy_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let own = own_ticks(&fs::read_to_string("/proc/self/stat").unwrap_or_default());
        let at_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Load { others_us: all.saturating_sub(own) * tick_us, at_us }
    }
}

/// The ticks of programs and other machines: user, nice, system and steal (proc_stat(5)).
fn busy_ticks(stat: &str) -> u64 {
    let fields: Vec<u64> =
        stat.lines().next().unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
    [0, 1, 2, 7].iter().filter_map(|at| fields.get(*at)).sum()
}

/// The ticks of this process and its children that ended (proc_pid_stat(5), fields 14 to 17).
fn own_ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_programs_counts_and_time_of_interrupts_and_rest_does_not() {
        assert_eq!(busy_ticks("cpu  100 20 3 4000 500 60 70 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"), 131);
        assert_eq!(own_ticks("42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1"), 127);
        assert_eq!((busy_ticks(""), own_ticks("")), (0, 0));
    }

    #[test]
    fn a_missing_tool_is_named_with_the_way_to_get_it() {
        let tool = Tool { program: "no-such-tool", version: "-V", how: "apt-get install no-such-tool" };
        assert_eq!(tool.version().unwrap_err().to_string(), "no-such-tool is not there: apt-get install no-such-tool");
    }
}
