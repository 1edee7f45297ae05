//! The metrics of a balancer, in the text that Prometheus reads.

use std::{fmt::Write as _, path::PathBuf};

use sallyport_cli::{
    failure::{Failure, Kind},
    output::note,
};
use sallyport_xdp::balance::Balancer;

use super::state::State;
use crate::command::{kernel, name_of, replace};

/// Writes the metrics. A file that cannot be written ends nothing.
#[derive(Debug)]
pub(super) struct Writer {
    file: Option<PathBuf>,
    is_failing: bool,
}

impl Writer {
    /// The writer of a file, which is tried before anything is changed.
    pub(super) fn new(file: Option<String>) -> anyhow::Result<Self> {
        let file = file.map(PathBuf::from);
        if let Some(file) = &file {
            let failed = |error| Failure::new(Kind::Failed, format!("{error:#}"));
            replace(file, "").map_err(|error| failed(error).next("make its folder, or name another file"))?;
        }
        Ok(Self { file, is_failing: false })
    }

    /// Writes what stands.
    pub(super) async fn write(&mut self, balancer: &Balancer, state: &State) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let written = replace(file, &text(balancer, state).await?);
        if let Err(error) = &written
            && !self.is_failing
        {
            note(&format!("{error:#}; the balancer goes on"));
        }
        self.is_failing = written.is_err();
        Ok(())
    }
}

async fn text(balancer: &Balancer, state: &State) -> anyhow::Result<String> {
    let mut text = String::new();
    let (_, devices) = kernel().await?;
    for count in balancer.counts()? {
        let port = count.ifindex.map(|index| name_of(&devices, index)).unwrap_or_default();
        let (action, reason) = (count.reason.action().name(), count.reason.name());
        let labels = format!("{{port=\"{port}\",action=\"{action}\",reason=\"{reason}\"}}");
        writeln!(text, "sallyport_packet_packets_total{labels} {}", count.packets)?;
        writeln!(text, "sallyport_packet_bytes_total{labels} {}", count.bytes)?;
    }
    let names = state.names();
    for count in balancer.target_counts()? {
        let Some(name) = names.get(&count.target) else { continue };
        let labels = format!("{{edge=\"{name}\"}}");
        writeln!(text, "sallyport_packet_balance_packets_total{labels} {}", count.packets)?;
        writeln!(text, "sallyport_packet_balance_bytes_total{labels} {}", count.bytes)?;
    }
    for edge in &state.effective().edges {
        let labels = format!("{{edge=\"{}\",state=\"{}\"}}", edge.name, edge.state.name());
        writeln!(text, "sallyport_packet_balance_edge{labels} 1")?;
    }
    Ok(text)
}
