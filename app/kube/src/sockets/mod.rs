//! The sockets of this cluster: every replica knows them, and the leader brings them to what the cluster asks for. Uses
//! `control`, `lead`, `serve`, `status` and `watch`.

mod act;
mod keeper;
mod list;
mod spec;
mod sweep;

use std::{collections::BTreeMap, time::Duration};

use sallyport_api::Socket;
use sallyport_client::{ApiClient, ClientError};
use sallyport_kube_model::{Blocked, ExposureKey, Settings};

pub(crate) use self::keeper::SocketKeeper;
use self::list::SocketList;

/// The sockets of a cluster, with what each is for.
///
/// # Errors
/// The API refuses or cannot be reached.
pub(crate) async fn of_cluster(
    client: &ApiClient,
    settings: &Settings,
) -> Result<Vec<(ExposureKey, Socket)>, ClientError> {
    let list = SocketList::read(client, settings.cluster.as_str(), None).await?;
    let sockets = list.sockets.into_values();
    Ok(sockets
        .filter_map(|socket| Some((ExposureKey::of_labels(&socket.labels.clone().into(), &settings.cluster)?, socket)))
        .collect())
}

/// What is known about the sockets.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownSockets {
    /// Whether the API listed them.
    pub(crate) is_listed: bool,
    /// The socket of each exposed port.
    pub(crate) by_key: BTreeMap<ExposureKey, Socket>,
    /// Why a port has no socket, or one that is not as asked: a word and a sentence.
    pub(crate) errors: BTreeMap<ExposureKey, (String, String)>,
    /// Sockets that stay as they are though nobody asks for them.
    pub(crate) blocked: Vec<Blocked>,
}

/// The settings of the keeper.
#[derive(Debug, Clone)]
pub(crate) struct SocketOptions {
    /// How often the sockets are listed where nothing has changed.
    pub(crate) resync: Duration,
    /// The first wait after a failed listing.
    pub(crate) retry: Duration,
    /// How long sockets stay whose object has vanished without its finalizer.
    pub(crate) sweep_after: Duration,
    /// How long tunnels stay that nobody holds.
    pub(crate) forget_after: Duration,
}
