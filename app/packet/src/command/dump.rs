//! `packet dump`: what became of packets, one by one.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use sallyport_cli::{
    failure::Failure,
    output::{self, Format, Output},
};
use sallyport_packet_model::dump::{Filter, is_rewritten, line, link};
use sallyport_xdp::{
    Action, Reason, Router, StandingPort,
    dump::{self, Dump, Look, MAX_SNAP_BYTES, Record},
    kernel::Device,
};
use serde::Serialize;
use time::OffsetDateTime;
use tokio::signal::unix::{SignalKind, signal};

use crate::command::{
    capture::{Capture, Direction},
    device_of, kernel, name_of,
};

/// Examples of the help.
pub(super) const EXAMPLES: &str = "Examples:
  sallyport packet dump
  sallyport packet dump --dropped 'host 192.0.2.7 and udp port 53'
  sallyport packet dump --sample 1000 --device eth1 --count 20
  sallyport packet dump -w dropped.pcapng --dropped
  sallyport packet dump -w - tcp port 443 | tcpdump -nr -";

/// How often the program hears that somebody looks.
const RENEW: Duration = Duration::from_secs(1);
/// How long an empty ring is left alone.
const PAUSE: Duration = Duration::from_millis(20);
/// The most KiB of the ring.
const MAX_BUFFER_KIB: u32 = 1 << 18;
/// Packets that are read at once.
const BATCH: usize = 512;
/// The most packets that are read after the end: those that were in the ring.
const MAX_LAST_PACKETS: usize = 1 << 17;

/// The arguments of `dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Whose packets
    #[arg(long, value_enum, default_value = "router")]
    pub(super) of: Part,
    /// Which packets, in the words of tcpdump: host, net, port, proto, vlan, src, dst, and, or, not
    filter: Vec<String>,
    /// Write pcapng into this file; `-` is the standard output, for `tcpdump -r -` or `wireshark -k -i -`
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Look at one packet of so many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// End after so many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Packets that XDP dropped
    #[arg(long)]
    dropped: bool,
    /// Packets that XDP forwarded
    #[arg(long)]
    forwarded: bool,
    /// Packets that were left to the kernel
    #[arg(long)]
    kernel: bool,
    /// Forwarded packets whose tags, addresses or ports were changed
    #[arg(long)]
    rewritten: bool,
    /// Packets of this reason, such as urpf or ttl; may be repeated
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Vec<Reason>,
    /// The port or VLAN by which packets come or leave
    #[arg(short = 'i', long, value_name = "DEVICE")]
    device: Option<String>,
    /// The most bytes of a frame to keep
    #[arg(short, long, value_name = "BYTES", default_value_t = MAX_SNAP_BYTES,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SNAP_BYTES)))]
    snaplen: u32,
    /// The KiB between the kernel and this command, a power of two
    #[arg(short = 'B', long, value_name = "KIB", default_value_t = 8192, value_parser = buffer)]
    buffer: u32,
    /// Show the link layer too
    #[arg(short = 'e', long)]
    link: bool,
    /// Show every forwarded packet as it came and as it left
    #[arg(long)]
    both: bool,
    /// Accepted for those who are used to it: addresses are never looked up
    #[arg(short = 'n', hide = true)]
    numeric: bool,
}

/// A part of the packet path.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Part {
    /// The router
    Router,
    /// The balancer
    Balance,
    /// The edge behind a balancer
    Decap,
}

impl Part {
    /// The name of its folder.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Balance => "balance",
            Self::Decap => "decap",
        }
    }
}

fn reason(word: &str) -> Result<Reason, String> {
    Reason::ALL.iter().copied().find(|reason| reason.name() == word).ok_or_else(|| {
        let words: Vec<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        format!("expected one of {}", words.join(", "))
    })
}

fn buffer(word: &str) -> Result<u32, String> {
    let is_right = |kib: &u32| kib.is_power_of_two() && (4..=MAX_BUFFER_KIB).contains(kib);
    word.parse().ok().filter(is_right).ok_or_else(|| format!("expected a power of two from 4 to {MAX_BUFFER_KIB}"))
}

#[derive(Debug, Serialize)]
struct PacketView<'a> {
    time: String,
    from: &'a str,
    to: Option<&'a str>,
    action: &'static str,
    reason: &'static str,
    is_rewritten: bool,
    packet: &'a str,
    became: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct EndView {
    shown: u64,
    filtered: u64,
    lost: u64,
}

/// Shows packets until the end is wanted.
pub(super) async fn dump(output: Output, router: &Router, args: DumpArgs) -> anyhow::Result<()> {
    let filter = Filter::parse(&args.filter.join(" ")).map_err(|error| {
        Failure::usage(error.to_string())
            .next("`sallyport packet dump --help` has examples; quote a filter with parentheses")
    })?;
    if args.write.is_some() && output.format != Format::Table {
        return Err(Failure::usage("-w writes packets as pcapng, and -o prints them: use one of both").into());
    }
    let ports = router.ports()?;
    let (_, devices) = kernel().await?;
    let device = args.device.as_ref().map(|name| {
        let index = device_of(&devices, name)?.index;
        let is_port = ports.iter().any(|port| port.ifindex == index);
        is_port
            .then_some(index)
            .ok_or_else(|| anyhow::Error::from(Failure::usage(format!("{name} is no port of the router"))))
    });
    let look = Look {
        reasons: reasons(&args),
        snap_bytes: args.snaplen,
        sample: args.sample,
        ring_bytes: args.buffer << 10,
        device: device.transpose()?,
    };
    let capture = args.write.as_deref().map(|path| Capture::create(path, args.snaplen)).transpose()?;
    let mut ends = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let dump = router.dump(look)?;
    let mut shower = Shower {
        output,
        filter,
        capture,
        devices: &devices,
        ports: &ports,
        epoch: SystemTime::now().duration_since(UNIX_EPOCH)?.saturating_sub(dump::now()),
        end: EndView { shown: 0, filtered: 0, lost: 0 },
        args,
    };
    output.hint("looking at packets; Ctrl-C ends it");
    shower.flush()?;
    let [interrupt, terminate] = &mut ends;
    let looking = shower.look(&dump);
    let shown = tokio::select! {
        shown = looking => shown,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    dump.stop()?;
    let shown = shown.and_then(|()| shower.finish(&dump));
    shower.say_end(dump.lost()?);
    shown
}

/// The reasons that the flags name; all without flags.
fn reasons(args: &DumpArgs) -> Vec<Reason> {
    let wants_all = !args.dropped && !args.forwarded && !args.rewritten && !args.kernel && args.reason.is_empty();
    let is_wanted = |reason: &Reason| match reason.action() {
        _ if wants_all || args.reason.contains(reason) => true,
        Action::Drop => args.dropped,
        Action::Kernel => args.kernel,
        Action::Forward => args.forwarded || args.rewritten,
    };
    Reason::ALL.iter().copied().filter(is_wanted).collect()
}

struct Shower<'a> {
    output: Output,
    filter: Filter,
    capture: Option<Capture>,
    devices: &'a [Device],
    ports: &'a [StandingPort],
    /// The wall clock when the monotonic clock began.
    epoch: Duration,
    end: EndView,
    args: DumpArgs,
}

impl Shower<'_> {
    /// Reads until so many packets are shown.
    async fn look(&mut self, dump: &Dump) -> anyhow::Result<()> {
        let mut renewed = dump::now();
        loop {
            if dump::now().saturating_sub(renewed) >= RENEW {
                dump.renew()?;
                renewed = dump::now();
            }
            let records = dump.read(BATCH)?;
            let was_empty = records.is_empty();
            for record in records {
                self.show(&record)?;
                if self.is_full() {
                    return self.flush();
                }
            }
            if was_empty {
                tokio::time::sleep(PAUSE).await;
            } else {
                self.flush()?;
                // Signals are heard also when packets never end.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Shows what was in the ring at the end.
    fn finish(&mut self, dump: &Dump) -> anyhow::Result<()> {
        for _ in 0..MAX_LAST_PACKETS / BATCH {
            let records = dump.read(BATCH)?;
            if records.is_empty() || self.is_full() {
                break;
            }
            for record in records {
                if !self.is_full() {
                    self.show(&record)?;
                }
            }
        }
        self.flush()
    }

    fn is_full(&self) -> bool {
        self.args.count.is_some_and(|count| self.end.shown >= count)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.capture.as_mut().map_or(Ok(()), Capture::flush)
    }

    fn show(&mut self, record: &Record) -> anyhow::Result<()> {
        let (before, after) = (&record.before, &record.after);
        // What was taken out of a tunnel is the kernel's, as another frame than came.
        let is_forwarded = record.reason.action() == Action::Forward || record.reason == Reason::Decapsulated;
        let is_rewritten = is_forwarded && is_rewritten(&before.bytes, &after.bytes);
        let is_other = self.args.rewritten
            && is_forwarded
            && !is_rewritten
            && !self.args.forwarded
            && !self.args.reason.contains(&record.reason);
        let is_match = self.filter.is_match(&before.bytes, before.length)
            || is_forwarded && self.filter.is_match(&after.bytes, after.length);
        if is_other || !is_match {
            self.end.filtered += 1;
            return Ok(());
        }
        self.end.shown += 1;
        let has_both = is_rewritten || is_forwarded && self.args.both;
        if self.capture.is_some() {
            return self.write(record, has_both);
        }
        self.print(record, is_rewritten, has_both)
    }

    fn print(&self, record: &Record, is_rewritten: bool, has_both: bool) -> anyhow::Result<()> {
        let shown = |frame: &dump::Frame| {
            let link = if self.args.link { link(&frame.bytes, frame.length) } else { String::new() };
            link + &line(&frame.bytes, frame.length)
        };
        let (from, to) = (name_of(self.devices, record.from), record.to.map(|to| name_of(self.devices, to)));
        let packet = shown(&record.before);
        let became = has_both.then(|| shown(&record.after));
        let time = self.epoch.saturating_add(record.time);
        let time = OffsetDateTime::UNIX_EPOCH + time;
        if self.output.format != Format::Table {
            let view = PacketView {
                time: time.format(&time::format_description::well_known::Rfc3339)?,
                from: &from,
                to: to.as_deref(),
                action: record.reason.action().name(),
                reason: record.reason.name(),
                is_rewritten,
                packet: &packet,
                became: became.as_deref(),
            };
            return match self.output.format {
                Format::Yaml => output::line(&format!("---\n{}", output::yaml(&view)?)),
                _ => output::json_line(&view),
            };
        }
        let (hour, minute, second, micro) = time.to_hms_micro();
        let way = to.map(|to| format!("{from} > {to}")).unwrap_or(from);
        let said = match record.reason.action() {
            Action::Forward if record.reason != Reason::Forwarded => format!("forward ({})", record.reason.name()),
            Action::Forward if is_rewritten => "rewrite".to_owned(),
            Action::Forward => "forward".to_owned(),
            action => format!("{} ({})", action.name(), record.reason.name()),
        };
        output::line(&format!("{hour:02}:{minute:02}:{second:02}.{micro:06} {way} {said} {packet}"))?;
        became.map_or(Ok(()), |became| output::line(&format!("    as {became}")))
    }

    /// Writes the frame at the port that it came by, and, if it has changed, the one at the port that it left by.
    fn write(&mut self, record: &Record, has_both: bool) -> anyhow::Result<()> {
        let Some(capture) = &mut self.capture else { return Ok(()) };
        let wire = |index: u32| {
            let port = self.ports.iter().find(|port| port.ifindex == index);
            let wire = port.map_or(index, |port| port.parent);
            (wire, name_of(self.devices, wire))
        };
        let reason = record.reason;
        let to = record.to.map(|to| name_of(self.devices, to));
        let comment = match (reason.action(), &to) {
            (Action::Forward, Some(to)) => format!("forward to {to}"),
            (action, _) => format!("{} ({}): {}", action.name(), reason.name(), reason.sentence()),
        };
        let time = self.epoch.saturating_add(record.time);
        let (index, name) = wire(record.from);
        capture.write((index, &name), time, &record.before, Direction::In, &comment)?;
        if let Some(to) = record.to.filter(|_| has_both) {
            let (index, name) = wire(to);
            let comment = format!("as it left: {} sent it on", name_of(self.devices, record.from));
            capture.write((index, &name), time, &record.after, Direction::Out, &comment)?;
        }
        Ok(())
    }

    /// Says how many packets there were, and how many were lost.
    fn say_end(&mut self, lost: u64) {
        self.end.lost = lost;
        let EndView { shown, filtered, lost } = self.end;
        if self.output.format == Format::Table {
            let word = |number: u64| if number == 1 { "packet" } else { "packets" };
            output::note(&format!(
                "{shown} {} shown, {filtered} left out by the filter, {lost} lost because the reader was slower",
                word(shown)
            ));
        } else if let Ok(text) = serde_json::to_string(&self.end) {
            output::note(&text);
        }
    }
}
