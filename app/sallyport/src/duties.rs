//! What only one process of an edge or a control may do at a time, and being replaced by another one.

use std::path::Path;

use anyhow::Context as _;
use sallyport_audit::AuditLog;
use sallyport_bus::ConfigProgress;
use sallyport_net::{HandOver, Shutdown, TakeoverOffer};
use sallyport_store::DataDirLock;
use tokio::task::AbortHandle;
use tracing::{info, warn};

/// What only one process of an edge or a control may do at a time: it ends here when another one takes over.
pub(crate) struct Duties {
    lock: DataDirLock,
    ports: HandOver,
    offer: TakeoverOffer,
    audit: AuditLog,
    /// At an edge, it writes the snapshot.
    followed: Option<ConfigProgress>,
    /// They write into the data directory, or speak for the machine on the bus.
    tasks: Vec<AbortHandle>,
}

impl Duties {
    /// Offers to be replaced.
    ///
    /// # Errors
    /// The socket for that cannot be made in the data directory.
    pub(crate) fn new(
        (lock, ports, data): (DataDirLock, HandOver, &Path),
        audit: AuditLog,
        followed: Option<ConfigProgress>,
        tasks: Vec<AbortHandle>,
    ) -> anyhow::Result<Self> {
        let offer = TakeoverOffer::open(data).with_context(|| format!("cannot make a socket in {}", data.display()))?;
        Ok(Self { lock, ports, offer, audit, followed, tasks })
    }

    /// Until the process is over, or until another one replaces it; then the data directory is no longer held.
    pub(crate) async fn until_over(self, shutdown: Shutdown) -> Option<DataDirLock> {
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
            self.tasks.iter().for_each(AbortHandle::abort);
            if let Some(followed) = &self.followed {
                followed.stop_saving();
            }
            shutdown.trigger();
            // Who holds the data directory writes the log.
            if let Err(error) = tokio::task::block_in_place(|| self.audit.hand_over()) {
                warn!(%error, "the last events of the audit log may not be on disk");
            }
            drop((self.ports, self.offer, self.lock));
            if let Err(error) = successor.released() {
                warn!(%error, "the process that took over went away");
            }
            return None;
        }
    }
}
