//! What became of packets at the ports, by reasons.

use clap::Args;
use sallyport_cli::output::{Output, table};
use sallyport_xdp::{Action, Count, kernel::Device};
use serde::Serialize;

use crate::command::name_of;

/// The arguments of `drops`.
#[derive(Debug, Args)]
pub(crate) struct DropsArgs {
    /// Also what was sent on, and what was left to the kernel
    #[arg(long)]
    pub(super) all: bool,
}

#[derive(Debug, Serialize)]
struct CountView {
    port: Option<String>,
    action: &'static str,
    reason: &'static str,
    packets: u64,
    bytes: u64,
    meaning: &'static str,
}

/// Shows what ports have counted.
pub(super) fn counts(output: Output, devices: &[Device], counts: Vec<Count>, shows_all: bool) -> anyhow::Result<()> {
    let counts = counts.into_iter().filter(|count| shows_all || count.reason.action() == Action::Drop);
    let counts = counts.map(|count| CountView {
        port: count.ifindex.map(|index| name_of(devices, index)),
        action: count.reason.action().name(),
        reason: count.reason.name(),
        packets: count.packets,
        bytes: count.bytes,
        meaning: count.reason.sentence(),
    });
    let counts: Vec<_> = counts.collect();
    output.list(&counts, "nothing was dropped", |counts| {
        let rows = counts.iter().map(|count| {
            let port = count.port.clone().unwrap_or_else(|| "-".to_owned());
            let (action, reason) = (count.action.to_owned(), count.reason.to_owned());
            [port, action, reason, count.packets.to_string(), count.bytes.to_string(), count.meaning.to_owned()]
        });
        table(["PORT", "ACTION", "REASON", "PACKETS", "BYTES", "MEANING"], rows)
    })
}
