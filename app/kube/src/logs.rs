//! The log of the program, to the standard error.

use std::io::IsTerminal as _;

use sallyport_logs::{Lines, LogBuffer, LogWriter};
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _, Registry, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::args::LogFormat;

/// The crates that log.
const OUR_CRATES: [&str; 6] = [
    "sallyport_kube",
    "sallyport_connector",
    "sallyport_tunnel",
    "sallyport_net",
    "sallyport_client",
    "sallyport_shards",
];

/// Starts the log. The drop of the [`LogWriter`] flushes it.
///
/// # Errors
/// `SALLYPORT_LOG` is no filter.
pub(crate) fn start(verbose: u8, format: LogFormat) -> anyhow::Result<LogWriter> {
    let level = match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let filter = match std::env::var("SALLYPORT_LOG") {
        Ok(text) if !text.is_empty() => text.parse::<Targets>().map_err(|error| {
            anyhow::anyhow!("SALLYPORT_LOG is no filter such as info or sallyport_kube=debug: {error}")
        })?,
        _ => Targets::new()
            .with_default(Level::ERROR)
            // What it says is in the errors that it returns.
            .with_target("kube_client", LevelFilter::OFF)
            .with_targets(OUR_CRATES.map(|name| (name, level))),
    };
    let (buffer, writer) = LogBuffer::start(std::io::stderr())?;
    let logs = tracing_subscriber::fmt::layer().with_writer(buffer);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let logs = match format {
        LogFormat::Text => logs.event_format(Lines::default()).with_ansi(colours).boxed(),
        LogFormat::Json => logs.json().flatten_event(true).boxed(),
    };
    let subscriber = Registry::default().with(logs.with_filter(filter));
    subscriber.try_init().map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))?;
    Ok(writer)
}
