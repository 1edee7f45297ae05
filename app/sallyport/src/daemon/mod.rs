//! The life of every server, whichever its role: start, replace another process, serve, shut down, end. Uses `runtime`
//! and `failure`.

mod audit_stream;
mod bus_health;
mod bus_metrics;
mod claim;
mod console;
mod dns_metrics;
mod metrics;
mod takeover;

use std::{
    path::Path,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use sallyport_audit::AuditLog;
use sallyport_edge::{Edge, ShutdownReport};
use sallyport_logs::LogWriter;
use sallyport_net::{Certificates, HandOver, Listening, Shutdown};
use sallyport_otlp::Traces;
use sallyport_store::DataDirLock;
use tracing::{info, warn};

use self::takeover::Duties;
pub(crate) use self::{
    audit_stream::AuditStream,
    bus_health::bus_health,
    bus_metrics::BusMetrics,
    claim::{Claim, Ports},
    console::{Console, Ready},
    metrics::Metrics,
    takeover::WhenReplaced,
};
use crate::{
    runtime::telemetry::Telemetry,
    signals::{INTERRUPTED, Signals},
};

/// How long the export of the last traces may delay the end.
const TRACE_FLUSH: Duration = Duration::from_secs(5);

/// A server from its first log line to its last.
///
/// A role prepares its parts between [`Daemon::start`] and [`Daemon::serve`], and may fail until it takes its
/// [`Claim`]. A process that is replaced serves until then.
pub(crate) struct Daemon {
    /// Begins the shutdown, on a signal or a takeover by another process.
    pub(crate) shutdown: Shutdown,
    /// The terminal, if a person watches.
    pub(crate) console: Console,
    traces: Option<Traces>,
    /// What withdraws its announcements before the shutdown begins.
    edge: Arc<OnceLock<Weak<Edge>>>,
    /// Flushes the log when dropped.
    _log: LogWriter,
}

/// The parts of a running server.
pub(crate) struct Service<'a> {
    /// Serves clients.
    pub(crate) edge: Arc<Edge>,
    /// The ports of the edge.
    pub(crate) listening: Listening,
    /// Certificates for these ports.
    pub(crate) certificates: Arc<Certificates>,
    /// Locks the data directory against other processes.
    pub(crate) lock: DataDirLock,
    /// Copies of all ports for a process that takes over.
    pub(crate) ports: HandOver,
    /// The data directory.
    pub(crate) data: &'a Path,
    /// The audit log in the data directory.
    pub(crate) audit: AuditLog,
    /// What ends or begins here at a takeover by another process.
    pub(crate) when_replaced: WhenReplaced,
}

/// What differs between servers once they serve.
pub(crate) trait Role {
    /// Logs that the server is ready, and where. Returns the status line for systemd.
    fn ready(&self) -> Option<String>;

    /// Waits for what ran beside the edge. Called after the edge has shut down.
    async fn drained(&mut self);

    /// Leaves the installation. Called after the shutdown, before the audit log is closed.
    async fn leave(&mut self, is_replaced: bool);
}

/// The end of a server.
pub(crate) struct Ended {
    /// The result of the edge's shutdown, or why the edge failed.
    pub(crate) report: anyhow::Result<ShutdownReport>,
    /// The data directory, unless another process has taken it over.
    pub(crate) lock: Option<DataDirLock>,
}

impl Daemon {
    /// Starts logs and traces, and listens for signals.
    ///
    /// # Errors
    /// The log settings cannot be used, or signals cannot be received.
    pub(crate) fn start(telemetry: &Telemetry<'_>, console: Console) -> anyhow::Result<Self> {
        let (log, traces) = telemetry.start()?;
        let shutdown = Shutdown::new();
        let edge = Arc::default();
        stop_on_signals(&shutdown, console, Arc::clone(&edge))?;
        Ok(Self { shutdown, console, traces, edge, _log: log })
    }

    /// Serves until a signal, a takeover by another process, or a failure of the edge; then shuts down.
    ///
    /// The order at the end: the edge shuts down, [`Role::drained`], the data directory is released for a successor,
    /// [`Role::leave`], the audit log is closed. The caller drops the lock.
    ///
    /// # Errors
    /// The socket for a successor cannot be made in the data directory.
    pub(crate) async fn serve(&self, service: Service<'_>, role: &mut impl Role) -> anyhow::Result<Ended> {
        let Service { edge, listening, certificates, lock, ports, data, audit, when_replaced } = service;
        let _ = self.edge.set(Arc::downgrade(&edge));
        let duties = Duties::new((lock, ports, data), audit.clone(), when_replaced)?;
        let status = role.ready();
        sallyport_net::notify_ready();
        if let Some(status) = status {
            sallyport_net::notify_status(&status);
        }
        let duties = tokio::spawn(duties.until_over(self.shutdown.clone()));
        let report = edge.serve(listening, certificates, self.shutdown.clone()).await;
        self.shutdown.trigger();
        role.drained().await;
        let lock = duties.await?;
        role.leave(lock.is_none()).await;
        // A replaced process too: its last events are on their way to the successor's spool.
        if let Err(error) = tokio::task::block_in_place(|| audit.close()) {
            warn!(%error, "the last events of the audit log may not be on disk");
        }
        Ok(Ended { report, lock })
    }

    /// Exports the last traces, within a time limit.
    pub(crate) async fn end(self) {
        let Some(traces) = self.traces else { return };
        let flushed = tokio::task::spawn_blocking(move || traces.flush());
        if tokio::time::timeout(TRACE_FLUSH, flushed).await.is_err() {
            warn!("the last traces were given up: the collector does not answer");
        }
    }
}

/// SIGTERM, SIGINT and SIGHUP begin the shutdown; a second signal ends the process at once.
///
/// Before the shutdown, clients are led elsewhere: the edge withdraws the prefixes that it announces. A process that is
/// replaced leaves them to its successor.
fn stop_on_signals(shutdown: &Shutdown, console: Console, edge: Arc<OnceLock<Weak<Edge>>>) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    let shutdown = Arc::new(shutdown.clone());
    tokio::spawn(async move {
        signals.next().await;
        sallyport_net::notify_stopping();
        info!("stopping: no new connections; what runs may finish");
        console.print("stopping: what runs may finish; Ctrl-C again to stop now");
        let begun = async {
            if let Some(edge) = edge.get().and_then(Weak::upgrade) {
                tokio::select! {
                    () = edge.withdraw() => {}
                    () = shutdown.wait() => {}
                }
            }
            shutdown.trigger();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = begun => {}
            _ = signals.next() => {}
        }
        warn!("stopping at once: this is the second signal");
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}
