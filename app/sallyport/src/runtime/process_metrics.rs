//! Metrics of the process: memory, processor time, files, start time, version, and the end of its certificates.

use std::{
    fmt, fs,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use rustix::process::{Resource, getrlimit};
use sallyport_net::Certificates;

/// The metrics of this process. Names with the prefix `process_` are those of the Prometheus conventions.
pub(crate) struct ProcessMetrics {
    began: f64,
    certificates: Arc<Certificates>,
    /// The end of the first machine certificate, in seconds since 1970.
    machine: Option<Arc<AtomicI64>>,
}

impl fmt::Debug for ProcessMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessMetrics").field("began", &self.began).finish_non_exhaustive()
    }
}

impl ProcessMetrics {
    /// Metrics of a process that has just started, with these certificates.
    pub(crate) fn new(certificates: Arc<Certificates>) -> Self {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self { began, certificates, machine: None }
    }

    /// Adds the end of the first machine certificate.
    pub(crate) fn of_machine(mut self, ends_at: Arc<AtomicI64>) -> Self {
        self.machine = Some(ends_at);
        self
    }

    pub(crate) fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }
}

/// What the kernel reports about this process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcessStat {
    cpu_seconds: f64,
    threads: u64,
    virtual_bytes: u64,
    resident_bytes: u64,
}

/// Reads `/proc/PID/stat` (proc_pid_stat(5)).
fn parse_stat(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<ProcessStat> {
    // The second field is the name in brackets, which may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // The numbering of the manual page begins with 1, and this list with field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    #[expect(clippy::cast_precision_loss, reason = "ticks of a process are far below 2^52")]
    let cpu_seconds = (field(14)? + field(15)?) as f64 / ticks_per_second.max(1) as f64;
    Some(ProcessStat {
        cpu_seconds,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.saturating_mul(page_bytes),
    })
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second();
        let stat_fields = parse_stat(&stat, ticks, rustix::param::page_size() as u64);
        if let Some(stat_fields) = stat_fields {
            let cpu = ConstCounter::new(stat_fields.cpu_seconds);
            let help = "Processor time that the process took, in user and system mode";
            // The encoder adds `_total`.
            cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        }
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        if let Some(stat_fields) = stat_fields {
            gauge(
                "process_resident_memory_bytes",
                "Memory of the process that is resident",
                signed(stat_fields.resident_bytes),
            )?;
            gauge(
                "process_virtual_memory_bytes",
                "Addresses that the process has mapped",
                signed(stat_fields.virtual_bytes),
            )?;
            gauge("process_threads", "Threads of the process", signed(stat_fields.threads))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is open only for this count.
            gauge("process_open_fds", "Open file descriptors", signed(open.count() as u64 - 1))?;
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            gauge("process_max_fds", "File descriptors that may be open", signed(most))?;
        }
        let began = ConstGauge::new(self.began);
        let help = "When the process began, in seconds since 1970";
        began.encode(encoder.encode_descriptor("process_start_time_seconds", help, None, began.metric_type())?)?;

        let one = ConstGauge::new(1_i64);
        let help = "Which version this is; always 1";
        let mut info = encoder.encode_descriptor("sallyport_build_info", help, None, one.metric_type())?;
        one.encode(info.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)?;
        let ends = self.certificates.ends();
        let machine = self.machine.as_ref().map(|ends_at| ends_at.load(Relaxed));
        let ends = [("server", ends.server), ("authority", ends.authority), ("machine", machine)];
        let name = "sallyport_certificate_not_after_timestamp_seconds";
        let help = "When certificates of this process end, in seconds since 1970";
        let mut family = encoder.encode_descriptor(name, help, None, one.metric_type())?;
        for (certificate, end) in ends {
            if let Some(end) = end {
                ConstGauge::new(end).encode(family.encode_family(&[("certificate", certificate)])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stat_file_is_parsed_with_any_process_name() {
        let text = "4321 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 12 0 777 1000000 300 18446744073709551615 1";
        let read = parse_stat(text, 100, 4_096).unwrap();
        let wanted =
            ProcessStat { cpu_seconds: 3.0, threads: 12, virtual_bytes: 1_000_000, resident_bytes: 300 * 4_096 };
        assert_eq!(read, wanted);
        for short in ["", "1 (a) S", "no brackets"] {
            assert_eq!(parse_stat(short, 100, 4_096), None, "{short}");
        }
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let own = parse_stat(&own, rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64).unwrap();
        assert!(own.threads > 0 && own.resident_bytes > 1_000_000 && own.virtual_bytes > own.resident_bytes, "{own:?}");
    }
}
