//! The duties of one process over a data directory, and handing them over to a successor.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use sallyport_audit::AuditLog;
use sallyport_bus::ConfigProgress;
use sallyport_control::Control;
use sallyport_net::{HandOver, Shutdown, TakeoverOffer};
use sallyport_store::DataDirLock;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

/// How often a process that was replaced reads what its successor changed.
const CATCH_UP_INTERVAL: Duration = Duration::from_secs(1);

/// What only one process over a data directory may do at a time. It ends here when another process takes over.
pub(super) struct Duties {
    lock: DataDirLock,
    ports: HandOver,
    offer: TakeoverOffer,
    audit: AuditLog,
    when_replaced: WhenReplaced,
}

/// What ends or begins in a process when another one takes over.
#[derive(Default)]
pub(crate) struct WhenReplaced {
    /// Tasks that write into the data directory, or speak for the machine on the bus. They end.
    pub(crate) tasks: Vec<AbortHandle>,
    /// What writes the snapshot of an edge. It stops.
    pub(crate) snapshot: Option<ConfigProgress>,
    /// A control without a bus. It begins to read what the successor changes.
    pub(crate) follower: Option<Control>,
}

impl Duties {
    /// Offers to be replaced.
    ///
    /// # Errors
    /// The socket for that cannot be made in the data directory.
    pub(super) fn new(
        (lock, ports, data): (DataDirLock, HandOver, &Path),
        audit: AuditLog,
        when_replaced: WhenReplaced,
    ) -> anyhow::Result<Self> {
        let offer = TakeoverOffer::open(data).with_context(|| format!("cannot make a socket in {}", data.display()))?;
        Ok(Self { lock, ports, offer, audit, when_replaced })
    }

    /// Until the process is over, or until another one replaces it; then the data directory is no longer held.
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
                    warn!(%error, "a process asked to take over and did not: all goes on here");
                    continue;
                }
            };
            info!("another process takes over: no new connections here; what runs may finish");
            // It says nothing more on the bus, not even that it ends: the other one goes on where this one stopped.
            self.when_replaced.tasks.iter().for_each(AbortHandle::abort);
            if let Some(snapshot) = &self.when_replaced.snapshot {
                snapshot.stop_saving();
            }
            shutdown.trigger();
            // Who holds the data directory writes the log.
            if let Err(error) = tokio::task::block_in_place(|| self.audit.hand_over()) {
                warn!(%error, "the last events of the audit log may not be on disk");
            }
            if let Some(control) = self.when_replaced.follower {
                tokio::spawn(keep_up(control));
            }
            drop((self.ports, self.offer, self.lock));
            if let Err(error) = successor.released() {
                warn!(%error, "the process that took over went away");
            }
            return None;
        }
    }
}

/// Reads what the successor changes, for as long as something runs here: whom it sends away is sent away here too.
async fn keep_up(control: Control) {
    loop {
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
        if let Err(error) = control.catch_up().await {
            debug!(error = format!("{error:#}"), "what the successor changed is not known");
        }
    }
}
