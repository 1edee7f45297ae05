//! The services that `sallyport run` holds: what is made for one at the API, and how that is taken back.

use std::{future::Future, sync::Arc};

use sallyport_api::{ConnectTo, CreatedTunnel, Secret, Socket};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_connector::Service;
use sallyport_model::{PathPrefix, SocketType, TunnelId};
use tokio::task::JoinSet;

use super::file::{Plan, ServiceSpec};
use crate::{
    command::{connect, hold::Origin, socket::request::PathService, tunnel},
    context::{Context, Target},
    failure::{self, Failure, Kind},
    signals::Signals,
};

/// How many calls of the API, or looks at services, run at a time.
pub(super) const MAX_AT_ONCE: usize = 16;

/// Whom to ask.
#[derive(Clone)]
pub(super) struct ApiClients {
    /// As whoever is logged in.
    client: ApiClient,
    /// As nobody, for those who have a credential.
    nobody: ApiClient,
}

/// A service that is held.
pub(super) struct RunningService {
    /// What it is called.
    pub(super) name: String,
    /// What the file said of its tunnel and its socket, and of itself.
    pub(super) tunnel_words: Vec<String>,
    pub(super) origin_words: Vec<String>,
    /// Its tunnel.
    pub(super) tunnel: TunnelId,
    /// How it is reached.
    pub(super) origin: Origin,
    /// Those of other paths of the same name.
    pub(super) others: Vec<PathTunnel>,
    /// The edge took the tunnel away, or refused it for good.
    pub(super) is_lost: bool,
    credential: Secret,
    made: Created,
    /// Its socket, where it is known.
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

/// What was made for a service, and is taken back at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Created {
    Nothing,
    /// With those of other paths.
    Tunnel,
    /// With its tunnels.
    Socket,
    /// The same, and it stays with its name once the services are there.
    LastingSocket,
}

/// Services that could not all be opened: what was made for them is taken back.
pub(super) enum OpenError {
    /// A signal came before they were.
    Stopped(anyhow::Error),
    /// Something was refused.
    Failed(anyhow::Error),
}

impl ApiClients {
    /// The API that is meant.
    ///
    /// # Errors
    /// There is none, or what is to be trusted cannot be used.
    pub(super) fn new(context: &Context, target: &Target) -> anyhow::Result<Self> {
        Ok(Self { client: context.client(target)?, nobody: context.client_of_nobody(target)? })
    }

    /// Where connectors dial to.
    ///
    /// # Errors
    /// The API cannot be asked.
    pub(super) async fn edge(&self) -> anyhow::Result<ConnectTo> {
        Ok(tunnel::edge_of(&self.nobody).await?)
    }

    /// Makes what the service needs.
    async fn open(&self, spec: ServiceSpec) -> anyhow::Result<RunningService> {
        let place = spec.place.clone();
        self.try_open(spec).await.map_err(|error| place.error(error))
    }

    async fn try_open(&self, spec: ServiceSpec) -> anyhow::Result<RunningService> {
        let held = |name, words: (Vec<String>, Vec<String>), origin, tunnel: (TunnelId, Secret), made, socket| {
            RunningService {
                name,
                tunnel_words: words.0,
                origin_words: words.1,
                tunnel: tunnel.0,
                origin,
                others: Vec::new(),
                is_lost: false,
                credential: tunnel.1,
                made,
                socket,
            }
        };
        let words = (spec.tunnel_words, spec.origin_words);
        let parts = |created: CreatedTunnel| (created.details.id, created.credential);
        match spec.plan {
            Plan::Lasting { tunnel: Some(id), credential: Some(credential), socket_type, origin, .. } => {
                let (id, origin) = (tunnel::whole_id(&id)?, origin.prepare(socket_type.unwrap_or(SocketType::Http))?);
                Ok(held(spec.name, words, origin, (id, credential), Created::Nothing, None))
            }
            Plan::Lasting { socket: reference, tunnel: id, path, origin, .. } => {
                let client = &self.client;
                let socket = client.socket(&reference).await.map_err(|error| failure::about(error, &reference))?;
                let origin = origin.prepare(socket.socket_type)?;
                let service = PathService { path: *path, origin };
                let created = tunnel::renew_or_create(client, &socket, id.as_ref(), &service.tunnel()).await?;
                let origin = service.origin;
                let made = if id.is_some() { Created::Nothing } else { Created::Tunnel };
                Ok(held(spec.name, words, origin, parts(created), made, Some(Box::new(socket))))
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
                let held = held(spec.name, words, own.origin, (own.tunnel, own.credential), made, None);
                Ok(RunningService { others, socket: Some(Box::new(found.socket)), ..held })
            }
        }
    }

    /// Makes a tunnel for each of the services of a name; all or none.
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

    /// Makes what the services need; all or none. They come back in their order.
    ///
    /// # Errors
    /// The first failure, or a signal. What was made is taken back.
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
                    Some((index, Ok(held))) => opened.push((index, held)),
                    Some((_, Err(error))) => failed = failed.or(Some(OpenError::Failed(error))),
                },
                () = signals.next() => match failed {
                    // What runs is waited for once, so that what it makes can be taken back.
                    Some(OpenError::Stopped(_)) => return Err(OpenError::Stopped(connect::given_up().into())),
                    _ => failed = Some(OpenError::Stopped(stopped().into())),
                },
            }
        }
        opened.sort_by_key(|(index, _)| *index);
        let mut opened: Vec<RunningService> = opened.into_iter().map(|(_, held)| held).collect();
        match failed {
            None => {
                let stays = opened.iter_mut().filter(|held| held.made == Created::LastingSocket);
                stays.for_each(|held| held.made = Created::Tunnel);
                Ok(opened)
            }
            Some(failed) => match self.remove_all(opened, signals).await {
                Ok(_) => Err(failed),
                Err(failure) => Err(OpenError::Failed(failure.into())),
            },
        }
    }

    /// Takes back what was made for this service.
    async fn remove(&self, held: &RunningService) -> Result<(), Failure> {
        match (held.made, &held.socket) {
            (Created::Socket | Created::LastingSocket, Some(socket)) => connect::delete(&self.client, socket).await,
            (Created::Tunnel, Some(socket)) => {
                let socket = SocketRef::from(socket.id);
                let others = held.others.iter().map(|other| other.tunnel);
                let mut first = Ok(());
                for tunnel in std::iter::once(held.tunnel).chain(others) {
                    first = first.and(tunnel::delete(&self.client, &socket, tunnel).await);
                }
                first
            }
            _ => Ok(()),
        }
    }

    /// Takes back what was made for these services; the next signal gives up. Gives how many had something made.
    ///
    /// # Errors
    /// What was not removed, by the first one.
    pub(super) async fn remove_all(&self, held: Vec<RunningService>, signals: &mut Signals) -> Result<usize, Failure> {
        let held: Vec<_> = held.into_iter().filter(|held| held.made != Created::Nothing).map(Arc::new).collect();
        let count = held.len();
        let removing = held.clone().into_iter().map(|held| {
            let api = self.clone();
            async move { api.remove(&held).await }
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
                    let left = held.iter().find_map(|held| Some(held.remains(held.socket.as_deref()?, count - done)));
                    return first.or(left).map_or(Ok(count), Err);
                }
            }
        }
    }
}

/// A signal came early.
fn stopped() -> Failure {
    Failure::new(Kind::Failed, "stopped before all services were there")
}

impl RunningService {
    /// The service as the connector serves it, and those of other paths.
    pub(super) fn services(&self) -> impl Iterator<Item = Service> {
        let others = self.others.iter().map(|other| other.origin.served_by(other.tunnel, &other.credential));
        std::iter::once(self.origin.served_by(self.tunnel, &self.credential)).chain(others)
    }

    /// Every tunnel, with what stands behind it and what that is called.
    pub(super) fn tunnels(&self) -> impl Iterator<Item = (TunnelId, &Origin, String)> {
        let others =
            self.others.iter().map(|other| (other.tunnel, &other.origin, format!("{}{}", self.name, other.path)));
        std::iter::once((self.tunnel, &self.origin, self.name.clone())).chain(others)
    }

    /// Puts these behind the tunnels: the service itself, then those of other paths.
    pub(super) fn set_origins(&mut self, origins: impl IntoIterator<Item = Origin>) {
        let tunnels = std::iter::once(&mut self.origin).chain(self.others.iter_mut().map(|other| &mut other.origin));
        tunnels.zip(origins).for_each(|(held, origin)| *held = origin);
    }

    /// The service was not removed, nor were others.
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

/// Futures of which [`MAX_AT_ONCE`] run at a time.
pub(super) struct BoundedFutures<I: Iterator<Item: Future>> {
    waiting: I,
    running: JoinSet<<I::Item as Future>::Output>,
}

impl<I> BoundedFutures<I>
where
    I: Iterator<Item: Future<Output: Send + 'static> + Send + 'static>,
{
    /// These; none runs yet.
    pub(super) fn of(futures: I) -> Self {
        Self { waiting: futures, running: JoinSet::new() }
    }

    /// What the next one gives that is done; none when all are. `goes_on`: further ones may begin. Cancel safe.
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
