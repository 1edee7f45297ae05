//! The duties that one process over a data directory has at a time, and their handover to a successor.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use sallyport_audit::AuditLog;
use sallyport_bus::ConfigProgress;
use sallyport_control::Control;
use sallyport_net::{HandOver, Shutdown, TakeoverOffer};
use sallyport_store::DataDirLock;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

/// How often a replaced process reads the changes of its successor.
const CATCH_UP_INTERVAL: Duration = Duration::from_secs(1);

/// What only one process over a data directory may do at a time. Ends with a takeover by another process.
pub(super) struct Duties {
    lock: DataDirLock,
    ports: HandOver,
    offer: TakeoverOffer,
    audit: AuditLog,
    when_replaced: WhenReplaced,
}

/// What ends or begins in a process that is replaced.
#[derive(Default)]
pub(crate) struct WhenReplaced {
    /// Tasks that write into the data directory, or publish for the machine on the bus. They end.
    pub(crate) tasks: Vec<AbortHandle>,
    /// The writer of an edge's snapshot. It stops.
    pub(crate) snapshot: Option<ConfigProgress>,
    /// A control without a bus. It begins to read the successor's changes.
    pub(crate) follower: Option<Control>,
}

impl Duties {
    /// Offers the duties to a successor.
    ///
    /// # Errors
    /// The socket for the successor cannot be made in the data directory.
    pub(super) fn new(
        (lock, ports, data): (DataDirLock, HandOver, &Path),
        audit: AuditLog,
        when_replaced: WhenReplaced,
    ) -> anyhow::Result<Self> {
        let offer = TakeoverOffer::open(data).with_context(|| format!("cannot make a socket in {}", data.display()))?;
        Ok(Self { lock, ports, offer, audit, when_replaced })
    }

    /// Runs until the process ends or is replaced. Returns the lock unless a successor has it.
    pub(super) async fn until_over(self, shutdown: Shutdown) -> Option<DataDirLock> {
        loop {
            let ready = async { self.offer.asked().await.ready(&self.ports).await };
            let successor = tokio::select! {
                () = shutdown.wait() => return Some(self.lock),
                successor = ready => {
                    successor.and_then(|mut successor| successor.send(&self.ports).map(|()| successor))
                }
            };
            let successor = match successor {
                Ok(successor) => successor,
                Err(error) => {
                    warn!(%error, "a process requested a takeover and did not complete it: this process goes on");
                    continue;
                }
            };
            if let Some(process_id) = successor.process_id() {
                sallyport_net::notify_main_process(process_id);
            }
            info!("another process takes over: no new connections here; what runs may finish");
            // Publishes nothing more on the bus, not even the departure: the successor continues the presence.
            self.when_replaced.tasks.iter().for_each(AbortHandle::abort);
            if let Some(snapshot) = &self.when_replaced.snapshot {
                snapshot.stop_saving();
            }
            shutdown.trigger();
            // The holder of the data directory writes the log.
            if let Err(error) = tokio::task::block_in_place(|| self.audit.hand_over()) {
                warn!(%error, "the last events of the audit log may not be on disk");
            }
            if let Some(control) = self.when_replaced.follower {
                tokio::spawn(keep_up(control));
            }
            drop((self.ports, self.offer, self.lock));
            if let Err(error) = successor.released() {
                warn!(%error, "the process that took over has ended");
            }
            return None;
        }
    }
}

/// Reads the successor's changes for as long as connections run here, so that logins that end there end here.
async fn keep_up(control: Control) {
    loop {
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
        if let Err(error) = control.catch_up().await {
            debug!(error = format!("{error:#}"), "what the successor changed is not known");
        }
    }
}
