//! Logs and traces of the program: where `tracing` events and spans go.

use clap::ValueEnum;
use sallyport_logs::{Lines, LogBuffer, LogWriter};
use sallyport_otlp::Traces;
use tracing::{Level, Metadata};
use tracing_subscriber::{
    Layer as _, Registry,
    filter::{self, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The target of exported spans: one for each request.
const TRACE_TARGET: &str = "request";

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line a person reads.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and where traces go.
#[derive(Debug)]
pub(crate) struct Telemetry<'a> {
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// The level without `-v`.
    pub(crate) default_level: Level,
    /// How log lines are written.
    pub(crate) format: LogFormat,
    /// The collector of traces, `http://HOST:PORT`.
    pub(crate) otlp_endpoint: Option<&'a str>,
    /// The sampled part of all traces, from 0 to 1.
    pub(crate) otlp_ratio: f64,
}

impl Telemetry<'_> {
    /// The telemetry of a server without traces.
    pub(crate) fn of_server(verbose: u8, format: LogFormat) -> Self {
        Self { verbose, default_level: Level::INFO, format, otlp_endpoint: None, otlp_ratio: 0.0 }
    }

    /// Starts logging to the standard error, and the export of traces if there is a collector. The drop of the
    /// [`LogWriter`] flushes the log.
    ///
    /// # Errors
    /// The collector's address cannot be used, or `SALLYPORT_LOG` is no filter.
    pub(crate) fn start(&self) -> anyhow::Result<(LogWriter, Option<Traces>)> {
        let level = match self.verbose {
            0 => self.default_level,
            1 => self.default_level.max(Level::DEBUG),
            _ => Level::TRACE,
        };
        let filter = match std::env::var("SALLYPORT_LOG") {
            Ok(text) if !text.is_empty() => text.parse::<Targets>().map_err(|error| {
                anyhow::anyhow!("SALLYPORT_LOG is no filter such as info or sallyport_edge=debug: {error}")
            })?,
            _ => default_filter(level),
        };
        let traces =
            self.otlp_endpoint.map(|to| Traces::start(to, env!("CARGO_PKG_VERSION"), self.otlp_ratio)).transpose()?;
        let spans = traces.as_ref().map(|traces| {
            traces
                .layer()
                .with_filter(filter::filter_fn(|meta: &Metadata<'_>| meta.is_span() && meta.target() == TRACE_TARGET))
        });
        let (buffer, writer) = LogBuffer::start(std::io::stderr())?;
        let logs = tracing_subscriber::fmt::layer().with_writer(buffer);
        let logs = match self.format {
            LogFormat::Text => logs.event_format(Lines::default()).with_ansi(colours_wanted()).boxed(),
            LogFormat::Json => logs.json().flatten_event(true).boxed(),
        };
        let logs = logs.with_filter(filter);
        Registry::default()
            .with(spans)
            .with(logs)
            .try_init()
            .map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))?;
        Ok((writer, traces))
    }
}

/// The crates whose events `-v` shows.
const OUR_CRATES: [&str; 8] = [
    "sallyport_edge",
    "sallyport_control",
    "sallyport_connector",
    "sallyport_tunnel",
    "sallyport_net",
    "sallyport_store",
    "sallyport_client",
    "sallyport_bus",
];

/// The filter for this level. Only crates of this repository log: those of the network stack log too much, and warn of
/// what any client can send.
fn default_filter(level: Level) -> Targets {
    let ours = OUR_CRATES.into_iter().chain(["sallyport", "access"]);
    Targets::new().with_default(Level::ERROR).with_targets(ours.map(|name| (name, level)))
}

/// Colours are for terminals only (<https://no-color.org>).
fn colours_wanted() -> bool {
    use std::io::IsTerminal as _;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_by_target_selects_detailed_logs() {
        let filter: Targets = "info,sallyport_edge=debug,access=off".parse().unwrap();
        assert!(filter.would_enable("sallyport_edge::listener", &Level::DEBUG));
        assert!(filter.would_enable("h2", &Level::INFO) && !filter.would_enable("h2", &Level::DEBUG));
        assert!(!filter.would_enable("access", &Level::ERROR));
        assert!("sallyport_edge=loud".parse::<Targets>().is_err());
    }

    #[test]
    fn clients_cannot_make_the_network_stack_fill_the_log() {
        for level in [Level::WARN, Level::INFO, Level::TRACE] {
            let subscriber = Registry::default().with(default_filter(level));
            tracing::subscriber::with_default(subscriber, || {
                assert!(!tracing::enabled!(target: "h2::proto::ping_pong", Level::WARN));
                assert!(tracing::enabled!(target: "h2::proto::ping_pong", Level::ERROR));
                assert!(tracing::enabled!(target: "sallyport_edge::listener", Level::WARN));
            });
        }
    }
}
