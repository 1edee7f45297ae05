//! The socket for a service of `connect` or `run`: a new one, or the existing one of a given name.

use sallyport_api::{CreateSocket, CreateTunnel, PolicyPlace, Socket, UpdateSocket};
use sallyport_client::{ApiClient, ClientError, PolicyRef, SocketRef};
use sallyport_model::{OriginAddr, OriginProtocol, PathRoute, SocketType};

use super::settings::SettingsArgs;
use crate::{
    args::service::ServiceAddress,
    command::{
        hold::{Origin, OriginArgs},
        options::{idempotency_key, labels::LabelsArgs},
    },
    failure::{self, Failure, Kind},
    view::quoted,
};

/// How many numbers are tried after a generated name; then it gets random digits.
const MAX_NUMBER: u32 = 9;

/// A service with its paths.
#[derive(Debug, Clone)]
pub(crate) struct PathService {
    /// The paths.
    pub(crate) path: PathRoute,
    /// The service.
    pub(crate) origin: Origin,
}

impl PathService {
    /// The tunnel to make for it.
    pub(crate) fn tunnel(&self) -> CreateTunnel {
        let PathRoute { prefix, rewrite } = self.path.clone();
        let (path, capacity) = ((!prefix.is_root()).then_some(prefix), self.origin.capacity.clone());
        CreateTunnel { path, rewrite_path: rewrite, capacity, ..CreateTunnel::default() }
    }
}

/// A requested socket.
#[derive(Debug)]
pub(crate) struct SocketRequest {
    /// The socket to make, unless it exists.
    pub(crate) create: CreateSocket,
    /// The name was chosen: an existing socket is used, and the socket stays at the end.
    pub(crate) is_named: bool,
    /// The type of the service, if given.
    pub(crate) socket_type: Option<SocketType>,
    /// The protocol, if given.
    pub(crate) origin_protocol: Option<OriginProtocol>,
    /// The given settings.
    pub(crate) settings: SettingsArgs,
    /// The given labels.
    pub(crate) labels: LabelsArgs,
    /// The paths of the service.
    pub(crate) path: PathRoute,
    /// Services of other paths of the name.
    pub(crate) others: Vec<(PathRoute, ServiceAddress)>,
    /// The service.
    pub(crate) origin: OriginArgs,
}

/// An existing socket.
pub(crate) struct OpenedSocket {
    /// The socket.
    pub(crate) socket: Socket,
    /// Whether it was made just now.
    pub(crate) is_new: bool,
}

impl SocketRequest {
    /// The socket of this name with the requested settings, or a new one.
    ///
    /// # Errors
    /// Those of the API, and changes that an existing socket cannot have.
    pub(crate) async fn socket(&self, client: &ApiClient) -> anyhow::Result<OpenedSocket> {
        if !self.is_named {
            return Ok(OpenedSocket { socket: self.numbered(client).await?, is_new: true });
        }
        if let Some(socket) = self.existing(client).await? {
            return self.adapted(client, socket).await;
        }
        self.settings.clone().set(&mut self.create.clone())?;
        self.services(self.create.socket_type)?;
        match client.create_socket(&self.create, &idempotency_key()?).await {
            Ok(socket) => Ok(OpenedSocket { socket, is_new: true }),
            // Another command has made it meanwhile.
            Err(error) if is_taken(&error) => match self.existing(client).await? {
                Some(socket) => self.adapted(client, socket).await,
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The services behind a socket of this type: the named one first, then those of other paths.
    ///
    /// # Errors
    /// Options that do not fit the type.
    pub(crate) fn services(&self, socket_type: SocketType) -> anyhow::Result<Vec<PathService>> {
        let is_whole = self.others.is_empty() && self.path.is_plain();
        if !(socket_type.is_http() || is_whole) {
            let failure =
                Failure::usage(format!("paths are for http and https sockets, and this is a {socket_type} socket"));
            return Err(failure.next("leave --path and what goes with it out").into());
        }
        let origin = self.origin.clone().prepare(socket_type)?;
        let beside = |(path, service): &(PathRoute, ServiceAddress)| {
            let origin = origin.beside(&self.origin, service)?;
            Ok(PathService { path: path.clone(), origin })
        };
        let others = self.others.iter().map(beside).collect::<Result<Vec<_>, Failure>>()?;
        Ok(std::iter::once(PathService { path: self.path.clone(), origin }).chain(others).collect())
    }

    /// The addresses of the services.
    pub(crate) fn addresses(&self) -> Vec<OriginAddr> {
        let others = self.others.iter().map(|(_, service)| service);
        std::iter::once(self.origin.service()).chain(others).map(|service| self.origin.address_of(service)).collect()
    }

    /// The services, for people.
    pub(crate) fn shown_services(&self) -> String {
        let shown =
            |service: &ServiceAddress| format!("{}://{}", self.create.socket_type, self.origin.address_of(service));
        if self.others.is_empty() {
            return shown(self.origin.service());
        }
        let own = std::iter::once((&self.path, self.origin.service()));
        let all = own.chain(self.others.iter().map(|(path, service)| (path, service)));
        all.map(|(path, service)| format!("{} {}", path.prefix, shown(service))).collect::<Vec<_>>().join(", ")
    }

    /// Makes a socket; a generated name that is taken gets a number.
    async fn numbered(&self, client: &ApiClient) -> anyhow::Result<Socket> {
        let mut create = self.create.clone();
        let mut number = 1;
        loop {
            match client.create_socket(&create, &idempotency_key()?).await {
                Err(error) if is_taken(&error) && number <= MAX_NUMBER => number += 1,
                made => return Ok(made?),
            }
            let behind = if number <= MAX_NUMBER { number } else { random_number()? };
            create.name = self.create.name.numbered(behind);
        }
    }

    /// The socket of this name. An id, or the beginning of one, does not match.
    async fn existing(&self, client: &ApiClient) -> anyhow::Result<Option<Socket>> {
        let name = &self.create.name;
        let found = match client.socket(&SocketRef::Called(name.clone())).await {
            Ok(found) => found,
            Err(ClientError::Problem(problem)) if problem.status == 404 && problem.code != "no-such-organisation" => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let is_label = found.label().is_some_and(|label| label.as_str() == name.key());
        Ok(Some(found).filter(|found| is_label || found.name.key() == name.key()))
    }

    /// Changes the socket to the requested settings.
    async fn adapted(&self, client: &ApiClient, socket: Socket) -> anyhow::Result<OpenedSocket> {
        let update = self.changes(&socket)?;
        self.services(socket.socket_type)?;
        let id = SocketRef::from(socket.id);
        let mut socket = if update.is_empty() { socket } else { client.update_socket(&id, &update).await? };
        for policy in self.create.policies.iter().flatten() {
            if socket.policies.contains(policy) {
                continue;
            }
            let policy: PolicyRef = policy.parse()?;
            let place = PolicyPlace { socket: Some(socket.id.to_string()), ..PolicyPlace::default() };
            client.attach_policy(&policy, &place).await.map_err(|error| failure::about(error, &policy))?;
            socket = client.socket(&id).await?;
        }
        Ok(OpenedSocket { socket, is_new: false })
    }

    /// The changes for the given options; everything else stays.
    ///
    /// # Errors
    /// Changes that are not possible.
    fn changes(&self, now: &Socket) -> Result<UpdateSocket, Failure> {
        let refused = |what: String, next: String| Err(Failure::new(Kind::Refused, what).next(next));
        let name = quoted(now.name.as_str());
        if let Some(wanted) = self.socket_type.filter(|wanted| *wanted != now.socket_type) {
            let what = format!("the socket {name} is there, of the type {}, and not {wanted}", now.socket_type);
            return refused(
                what,
                format!("leave --type out, give another --name, or `sallyport socket edit {name} --type {wanted}`"),
            );
        }
        if let Some(wanted) = self.create.port.filter(|wanted| Some(*wanted) != now.port) {
            let has = now.port.map_or_else(|| "no port of its own".to_owned(), |port| format!("the port {port}"));
            let what = format!("the socket {name} is there, with {has}, and not {wanted}");
            return refused(what, "leave --public-port out, or give another --name".to_owned());
        }
        if self.create.protected.is_some() && !now.socket_type.is_http() {
            let what = format!(
                "only http and https sockets can be protected by a password, and {name} is of the type {}",
                now.socket_type
            );
            return refused(what, "leave --protected out; --allow and --deny limit the networks of clients".to_owned());
        }
        let mut update = UpdateSocket::default();
        self.settings.clone().change(Some(now), &mut update)?;
        Ok(UpdateSocket {
            labels: self.labels.added_to(&now.labels)?.map(Some),
            origin_protocol: self.origin_protocol.filter(|wanted| *wanted != now.origin_protocol),
            protected: self.create.protected.clone().map(Some),
            proxy_protocol: other(update.proxy_protocol, &now.proxy_protocol),
            tls_mode: other(update.tls_mode, &now.tls_mode),
            alpn: other(update.alpn, &now.alpn),
            health_check: update.health_check.filter(|wanted| *wanted != now.health_check),
            affinity: other(update.affinity, &now.affinity),
            limits: other(update.limits, &now.limits),
            access: other(update.access, &now.access),
            amplification_guard: other(update.amplification_guard, &now.amplification_guard),
            identity: update.identity.filter(|wanted| *wanted != now.identity),
            regions: other(update.regions, &now.regions),
            host_header: update.host_header.filter(|wanted| *wanted != now.host_header),
            headers: other(update.headers, &now.headers),
            domains: update.domains.filter(|wanted| {
                let (mut wanted, mut now) = (wanted.clone(), now.domains.clone());
                wanted.sort_unstable();
                now.sort_unstable();
                wanted != now
            }),
            ..UpdateSocket::default()
        })
    }
}

/// The requested value, unless it is set already.
fn other<T: PartialEq>(wanted: Option<Option<T>>, now: &T) -> Option<Option<T>> {
    wanted.filter(|wanted| wanted.as_ref() != Some(now))
}

fn is_taken(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(problem) if problem.status == 409 && problem.code == "name-taken")
}

fn random_number() -> anyhow::Result<u32> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::command::connect::ConnectArgs;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ConnectArgs,
    }

    fn request(line: &str) -> SocketRequest {
        let words = ["x", "--port", "8000", "--name", "blog"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string()).unwrap().args.read().unwrap()
    }

    fn blog(more: &str) -> Socket {
        let json = format!(
            r#"{{"id":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","name":"Blog","dns_name":"calm-bay-1000.localhost","url":"u",
                "type":"http","origin_protocol":"auto","created_at":"2026-01-01T12:00:00Z","tunnels_total":0,"tunnels_up":0{more}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_socket_that_is_there_gets_what_it_lacks_and_keeps_the_rest() {
        let has = blog(r#","affinity":"cookie","limits":{"queue":5},"protected":{"username":"ann"}"#);
        assert!(request("").changes(&has).unwrap().is_empty());
        assert!(request("--affinity cookie --queue 5 --type http").changes(&has).unwrap().is_empty(), "it has them");
        let update = request("--affinity none --origin-protocol http2 --allow 10.0.0.0/8").changes(&has).unwrap();
        assert_eq!(update.affinity, Some(Some(sallyport_model::Affinity::None)));
        assert_eq!(update.origin_protocol, Some(OriginProtocol::Http2));
        assert!(update.access.is_some() && update.limits.is_none() && update.protected.is_none());
        let has = blog(
            r#","access":{"allow":["10.0.0.0/8"],"deny":["10.1.0.0/16"]},"host_header":"origin",
               "headers":{"response":{"set":[{"name":"x-env","value":"a"}]}}"#,
        );
        assert!(request("--host-header origin --response-header X-Env:a").changes(&has).unwrap().host_header.is_none());
        let update = request("--allow 10.2.0.0/16 --remove-response-header Server").changes(&has).unwrap();
        assert_eq!(update.access.flatten().unwrap().deny, ["10.1.0.0/16"], "a setting without an option stays");
        let response = update.headers.flatten().unwrap().response;
        assert_eq!((response.set.len(), response.remove.len()), (1, 1));
        assert!(update.host_header.is_none());
    }

    #[test]
    fn a_name_has_several_services_by_their_paths() {
        let request = request("--path /api=9000 --path /docs=http://10.0.0.7:80/v2");
        assert_eq!(
            request.shown_services(),
            "/ http://localhost:8000, /api http://localhost:9000, /docs http://10.0.0.7:80"
        );
        let services = request.services(SocketType::Https).unwrap_err().to_string();
        assert!(services.contains("begins with http://"), "{services}");
        assert_eq!(request.services(SocketType::Http).unwrap().len(), 3);
        let refused = request.services(SocketType::Tcp).unwrap_err().to_string();
        assert!(refused.contains("paths are for http and https sockets"), "{refused}");
    }

    #[test]
    fn what_a_socket_cannot_become_is_refused() {
        let refused = |line: &str| request(line).changes(&blog("")).unwrap_err();
        assert!(refused("--type tcp").message.contains("is there, of the type http, and not tcp"));
        let port = refused("--public-port 20001");
        assert!(port.message.contains("no port of its own, and not 20001") && port.kind == Kind::Refused);
    }
}
