//! The services of `sallyport run`: what is made for each at the API, and its removal.

use std::{future::Future, sync::Arc};

use sallyport_api::{ConnectTo, CreatedTunnel, Secret, Socket};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_connector::Service;
use sallyport_model::{PathPrefix, SocketType, TunnelId};
use tokio::task::JoinSet;

use super::{
    content::NamedDigest,
    file::{Plan, ServiceSpec},
};
use crate::{
    command::{connect, hold::Origin, socket::request::PathService, tunnel},
    context::{Context, Target},
    failure::{self, Failure, Kind},
    signals::Signals,
};

/// How many API calls or service checks run at once.
pub(super) const MAX_AT_ONCE: usize = 16;

/// The clients of the API.
#[derive(Clone)]
pub(super) struct ApiClients {
    /// With the login.
    client: ApiClient,
    /// Without a login, for tunnels with a credential.
    anonymous: ApiClient,
}

/// A running service.
pub(super) struct RunningService {
    /// Its name.
    pub(super) name: String,
    /// The options of its tunnel and socket, and its own, as in the file.
    pub(super) tunnel_words: Vec<String>,
    pub(super) origin_words: Vec<String>,
    /// The digest of its authority, if it names one.
    pub(super) authority: NamedDigest,
    /// Its tunnel.
    pub(super) tunnel: TunnelId,
    /// How it is reached.
    pub(super) origin: Origin,
    /// The services of other paths of the same name.
    pub(super) others: Vec<PathTunnel>,
    /// Whether the edge has ended the tunnel for good.
    pub(super) is_lost: bool,
    credential: Secret,
    made: Created,
    /// Its socket, if known.
    pub(super) socket: Option<Box<Socket>>,
}

/// A service of another path of the same name.
pub(super) struct PathTunnel {
    /// Its path.
    pub(super) path: PathPrefix,
    /// Its tunnel.
    pub(super) tunnel: TunnelId,
    /// How it is reached.
    pub(super) origin: Origin,
    credential: Secret,
}

/// What was made for a service, and is removed at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Created {
    Nothing,
    /// The tunnels.
    Tunnel,
    /// The socket with its tunnels.
    Socket,
    /// Likewise until all services are open; then the named socket stays.
    LastingSocket,
}

/// Why services could not be opened; what was made for them is removed.
pub(super) enum OpenError {
    /// A signal came.
    Stopped(anyhow::Error),
    /// A call failed.
    Failed(anyhow::Error),
}

impl ApiClients {
    /// The clients of this API.
    ///
    /// # Errors
    /// There is no API, or the trusted certificates cannot be used.
    pub(super) fn new(context: &Context, target: &Target) -> anyhow::Result<Self> {
        Ok(Self { client: context.client(target)?, anonymous: context.anonymous_client(target)? })
    }

    /// The address that connectors dial.
    ///
    /// # Errors
    /// The API cannot be reached.
    pub(super) async fn edge(&self) -> anyhow::Result<ConnectTo> {
        Ok(tunnel::edge_of(&self.anonymous).await?)
    }

    /// Makes what the service needs.
    async fn open(&self, spec: ServiceSpec) -> anyhow::Result<RunningService> {
        let place = spec.place.clone();
        self.try_open(spec).await.map_err(|error| place.error(error))
    }

    async fn try_open(&self, spec: ServiceSpec) -> anyhow::Result<RunningService> {
        let words = (spec.tunnel_words, spec.origin_words);
        let authority = spec.authority;
        let running = |name, words: (Vec<String>, Vec<String>), origin, tunnel: (TunnelId, Secret), made, socket| {
            RunningService {
                name,
                tunnel_words: words.0,
                origin_words: words.1,
                authority,
                tunnel: tunnel.0,
                origin,
                others: Vec::new(),
                is_lost: false,
                credential: tunnel.1,
                made,
                socket,
            }
        };
        let parts = |created: CreatedTunnel| (created.details.id, created.credential);
        match spec.plan {
            Plan::Lasting { tunnel: Some(id), credential: Some(credential), socket_type, origin, .. } => {
                let (id, origin) = (tunnel::whole_id(&id)?, origin.prepare(socket_type.unwrap_or(SocketType::Http))?);
                Ok(running(spec.name, words, origin, (id, credential), Created::Nothing, None))
            }
            Plan::Lasting { socket: reference, tunnel: id, path, origin, .. } => {
                let client = &self.client;
                let socket = client.socket(&reference).await.map_err(|error| failure::about(error, &reference))?;
                let origin = origin.prepare(socket.socket_type)?;
                let service = PathService { path: *path, origin };
                let created = tunnel::renew_or_create(client, &socket, id.as_ref(), &service.tunnel()).await?;
                let origin = service.origin;
                let made = if id.is_some() { Created::Nothing } else { Created::Tunnel };
                Ok(running(spec.name, words, origin, parts(created), made, Some(Box::new(socket))))
            }
            Plan::Requested(request) => {
                let found = request.socket(&self.client).await?;
                let made = match (request.is_named, found.is_new) {
                    (false, _) => Created::Socket,
                    (true, true) => Created::LastingSocket,
                    (true, false) => Created::Tunnel,
                };
                let opened = match request.services(found.socket.socket_type) {
                    Ok(services) => self.open_tunnels(&found.socket, services).await,
                    Err(error) => Err(error),
                };
                let (own, others) = match opened {
                    Ok(opened) => opened,
                    Err(error) => {
                        if found.is_new {
                            connect::delete(&self.client, &found.socket).await?;
                        }
                        return Err(error);
                    }
                };
                let service = running(spec.name, words, own.origin, (own.tunnel, own.credential), made, None);
                Ok(RunningService { others, socket: Some(Box::new(found.socket)), ..service })
            }
        }
    }

    /// Makes a tunnel for each service of a name: all or none.
    async fn open_tunnels(
        &self,
        socket: &Socket,
        services: Vec<PathService>,
    ) -> anyhow::Result<(PathTunnel, Vec<PathTunnel>)> {
        let mut opened: Vec<PathTunnel> = Vec::with_capacity(services.len());
        for PathService { path, origin } in services {
            let service = PathService { path, origin };
            let create = service.tunnel();
            let PathService { path, origin } = service;
            match tunnel::renew_or_create(&self.client, socket, None, &create).await {
                Ok(CreatedTunnel { details, credential, .. }) => {
                    opened.push(PathTunnel { path: path.prefix, tunnel: details.id, origin, credential });
                }
                Err(error) => {
                    for other in opened {
                        tunnel::delete(&self.client, &SocketRef::from(socket.id), other.tunnel).await?;
                    }
                    return Err(error);
                }
            }
        }
        let others = opened.split_off(1.min(opened.len()));
        let own = opened.pop().ok_or_else(|| Failure::usage("there is no service"))?;
        Ok((own, others))
    }

    /// Makes what the services need, all or none. The result keeps their order.
    ///
    /// # Errors
    /// The first failure, or a signal. What was made is removed.
    pub(super) async fn open_all(
        &self,
        specs: Vec<ServiceSpec>,
        signals: &mut Signals,
    ) -> Result<Vec<RunningService>, OpenError> {
        let opening = specs.into_iter().enumerate().map(|(index, spec)| {
            let api = self.clone();
            async move { (index, api.open(spec).await) }
        });
        let (mut opened, mut failed) = (Vec::new(), None);
        let mut several = BoundedFutures::of(opening);
        loop {
            tokio::select! {
                next = several.next(failed.is_none()) => match next {
                    None => break,
                    Some((index, Ok(service))) => opened.push((index, service)),
                    Some((_, Err(error))) => failed = failed.or(Some(OpenError::Failed(error))),
                },
                () = signals.next() => match failed {
                    // Running calls are awaited, so that what they make can be removed.
                    Some(OpenError::Stopped(_)) => return Err(OpenError::Stopped(connect::given_up().into())),
                    _ => failed = Some(OpenError::Stopped(stopped().into())),
                },
            }
        }
        opened.sort_by_key(|(index, _)| *index);
        let mut opened: Vec<RunningService> = opened.into_iter().map(|(_, service)| service).collect();
        match failed {
            None => {
                let stays = opened.iter_mut().filter(|service| service.made == Created::LastingSocket);
                stays.for_each(|service| service.made = Created::Tunnel);
                Ok(opened)
            }
            Some(failed) => match self.remove_all(opened, signals).await {
                Ok(_) => Err(failed),
                Err(failure) => Err(OpenError::Failed(failure.into())),
            },
        }
    }

    /// Removes what was made for this service.
    async fn remove(&self, service: &RunningService) -> Result<(), Failure> {
        match (service.made, &service.socket) {
            (Created::Socket | Created::LastingSocket, Some(socket)) => connect::delete(&self.client, socket).await,
            (Created::Tunnel, Some(socket)) => {
                let socket = SocketRef::from(socket.id);
                let others = service.others.iter().map(|other| other.tunnel);
                let mut first = Ok(());
                for tunnel in std::iter::once(service.tunnel).chain(others) {
                    first = first.and(tunnel::delete(&self.client, &socket, tunnel).await);
                }
                first
            }
            _ => Ok(()),
        }
    }

    /// Removes what was made for these services. A further signal ends that. Returns for how many services something
    /// had been made.
    ///
    /// # Errors
    /// The first failed removal.
    pub(super) async fn remove_all(
        &self,
        services: Vec<RunningService>,
        signals: &mut Signals,
    ) -> Result<usize, Failure> {
        let services: Vec<_> =
            services.into_iter().filter(|service| service.made != Created::Nothing).map(Arc::new).collect();
        let count = services.len();
        let removing = services.clone().into_iter().map(|service| {
            let api = self.clone();
            async move { api.remove(&service).await }
        });
        let (mut several, mut first, mut done) = (BoundedFutures::of(removing), None, 0);
        loop {
            tokio::select! {
                next = several.next(true) => match next {
                    None => return first.map_or(Ok(count), Err),
                    Some(outcome) => {
                        done += 1;
                        first = first.or(outcome.err());
                    }
                },
                () = signals.next() => {
                    let left = services
                        .iter()
                        .find_map(|service| Some(service.remains(service.socket.as_deref()?, count - done)));
                    return first.or(left).map_or(Ok(count), Err);
                }
            }
        }
    }
}

/// The failure for an early signal.
fn stopped() -> Failure {
    Failure::new(Kind::Failed, "stopped before all services were there")
}

impl RunningService {
    /// The services for the connector, those of other paths included.
    pub(super) fn services(&self) -> impl Iterator<Item = Service> {
        let others = self.others.iter().map(|other| other.origin.served_by(other.tunnel, &other.credential));
        std::iter::once(self.origin.served_by(self.tunnel, &self.credential)).chain(others)
    }

    /// Every tunnel with its service and the name of that.
    pub(super) fn tunnels(&self) -> impl Iterator<Item = (TunnelId, &Origin, String)> {
        let others =
            self.others.iter().map(|other| (other.tunnel, &other.origin, format!("{}{}", self.name, other.path)));
        std::iter::once((self.tunnel, &self.origin, self.name.clone())).chain(others)
    }

    /// Replaces the services behind the tunnels: the service itself first, then those of other paths.
    pub(super) fn set_origins(&mut self, origins: impl IntoIterator<Item = Origin>) {
        let tunnels = std::iter::once(&mut self.origin).chain(self.others.iter_mut().map(|other| &mut other.origin));
        tunnels.zip(origins).for_each(|(service, origin)| *service = origin);
    }

    /// The failure if the service, and perhaps others, were not removed.
    fn remains(&self, socket: &Socket, count: usize) -> Failure {
        let failure = match self.made {
            Created::Tunnel => tunnel::remains(&SocketRef::from(socket.id), self.tunnel, "it was not waited for"),
            Created::Socket | Created::LastingSocket | Created::Nothing => {
                connect::remains(socket, "it was not waited for")
            }
        };
        match count {
            0 | 1 => failure,
            _ => Failure { message: format!("{}; {} others too", failure.message, count - 1), ..failure },
        }
    }
}

/// Futures of which at most [`MAX_AT_ONCE`] run at a time.
pub(super) struct BoundedFutures<I: Iterator<Item: Future>> {
    waiting: I,
    running: JoinSet<<I::Item as Future>::Output>,
}

impl<I> BoundedFutures<I>
where
    I: Iterator<Item: Future<Output: Send + 'static> + Send + 'static>,
{
    /// None runs yet.
    pub(super) fn of(futures: I) -> Self {
        Self { waiting: futures, running: JoinSet::new() }
    }

    /// The output of the next finished future; `None` when all are done. `goes_on` allows further ones to start. Cancel
    /// safe.
    pub(super) async fn next(&mut self, goes_on: bool) -> Option<<I::Item as Future>::Output> {
        while goes_on && self.running.len() < MAX_AT_ONCE {
            let Some(future) = self.waiting.next() else { break };
            self.running.spawn(future);
        }
        loop {
            match self.running.join_next().await? {
                Ok(output) => return Some(output),
                Err(error) => tracing::error!(%error, "a call was not finished"),
            }
        }
    }
}
