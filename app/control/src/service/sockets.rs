//! Making, finding, changing and deleting sockets.

use http::StatusCode;
use sallyport_api::{CreateSocket, FieldError, Protect, Protected, Socket, SshAccess, UpdateSocket};
use sallyport_bus::ssh_login_name;
use sallyport_model::{
    AccountId, AttachedPolicy, BasicAuth, DisplayName, IdentitySettings, MAX_PASSWORD_BYTES, OriginProtocol, ShortId,
    SocketId, SocketName, SocketSettings, SocketType,
};
use sallyport_policy::PolicySet;
use sallyport_store::{Creation, HolderId, IdempotencyKey, Maker, NameConflict, NewSocket, PortRequest, SocketChange};

use super::{
    policies::{check_some_client_is_admitted, note_on_logins},
    regions::check_dials,
    settings::{SettingsChange, settled},
};
use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// How many random names are tried before giving up.
const MAX_NAME_TRIES: usize = 32;
/// The longest user name of a protected socket, in characters.
const MAX_USERNAME_CHARS: usize = 128;
/// The port of ssh, which commands need not name.
const SSH_PORT: u16 = 22;

/// The lifetime of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until it is deleted.
    Lasting,
    /// As long as the forward that it was made for. Its maker gets the same name and port again, if the maker is known.
    Temporary {
        /// The maker.
        maker: Option<Maker>,
        /// The process that holds the forward.
        holder: HolderId,
    },
}

impl Lifetime {
    fn maker(self) -> Option<Maker> {
        match self {
            Self::Lasting => None,
            Self::Temporary { maker, .. } => maker,
        }
    }

    fn holder(self) -> Option<HolderId> {
        match self {
            Self::Lasting => None,
            Self::Temporary { holder, .. } => Some(holder),
        }
    }
}

impl App {
    /// The socket in the form of the API. `by_own`: the caller is in its own organisation, to which alone ssh keys
    /// lead. `lacks_provider`: see [`App::lacks_provider`].
    pub(crate) fn socket_to_api(&self, socket: sallyport_model::Socket, by_own: bool, lacks_provider: bool) -> Socket {
        let route = self.routes.get(socket.id);
        let tunnels = route.as_ref().map(|route| route.tunnels.as_slice()).unwrap_or_default();
        let up = tunnels.iter().filter(|tunnel| self.directory.get(tunnel.id).is_some()).count();
        let (origins_failing, failure) = route.as_ref().map(|route| self.socket_failures(route)).unwrap_or_default();
        let ssh = self.ssh_access(&socket).filter(|_| by_own);
        let policies = route.as_ref().map(|route| route.policies.as_slice()).unwrap_or_default();
        let mut notes = self.notes_on_regions(socket.id, &socket.settings);
        notes.extend(note_on_logins(policies, socket.settings.identity.as_ref(), lacks_provider));
        let authorities = self.authorities.of(socket.account);
        let settings = socket.settings;
        Socket {
            id: socket.id,
            dns_name: self.dns_name(&socket.name),
            url: self.socket_url(&socket.name, socket.socket_type, socket.port),
            name: socket.display_name,
            socket_type: socket.socket_type,
            origin_protocol: socket.origin_protocol,
            protected: socket.basic_auth.map(|basic| Protected { username: basic.username }),
            port: socket.port,
            proxy_protocol: settings.proxy_protocol,
            tls_mode: settings.tls_mode,
            alpn: settings.alpn,
            health_check: settings.health_check.map(Into::into),
            affinity: settings.affinity,
            limits: settings.limits,
            access: settings.access,
            amplification_guard: settings.amplification_guard || self.config.requires_amplification_guard,
            ssh_authority: authorities.ssh.filter(|_| settings.identity.is_some()),
            client_authority: authorities
                .client_tls
                .filter(|_| settings.identity.is_some() && socket.socket_type == SocketType::Tls),
            identity: settings.identity,
            regions: settings.regions,
            host_header: settings.host_header,
            headers: settings.headers,
            labels: socket.labels,
            domains: route
                .as_ref()
                .map(|route| route.domains.iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            notes,
            policies: policies.iter().map(|policy| policy.name.clone()).collect(),
            ssh,
            created_at: date(socket.created_at),
            tunnels_total: u32::try_from(tunnels.len()).unwrap_or(u32::MAX),
            tunnels_up: u32::try_from(up).unwrap_or(u32::MAX),
            origins_failing,
            failure,
        }
    }

    pub(crate) fn dns_name(&self, name: &SocketName) -> String {
        format!("{name}.{}", self.config.domain)
    }

    /// The URL of the socket.
    pub(crate) fn socket_url(&self, name: &SocketName, socket_type: SocketType, port: Option<u16>) -> String {
        let host = self.dns_name(name);
        let shared = self.config.public_port;
        match socket_type {
            SocketType::Http | SocketType::Https if shared == 443 => format!("https://{host}"),
            SocketType::Http | SocketType::Https => format!("https://{host}:{shared}"),
            // By name at the shared port, which passes more firewalls than the socket's own.
            SocketType::Tls => format!("tls://{host}:{shared}"),
            SocketType::Tcp | SocketType::Udp => format!("{socket_type}://{host}:{}", port.unwrap_or(shared)),
        }
    }

    /// How a stock ssh client serves the socket; `None` for UDP.
    fn ssh_access(&self, socket: &sallyport_model::Socket) -> Option<SshAccess> {
        let ssh = self.config.ssh.as_ref().filter(|_| socket.socket_type != SocketType::Udp)?;
        let user = ssh_login_name(socket.account);
        let port = if ssh.port == SSH_PORT { String::new() } else { format!("-p {} ", ssh.port) };
        let forward = format!("{}:{}:localhost:PORT", socket.name, socket.port.unwrap_or(80));
        Some(SshAccess {
            command: format!("ssh {port}-R {forward} {user}@{}", ssh.host),
            host: ssh.host.clone(),
            port: ssh.port,
            user,
            known_hosts: ssh.known_hosts.clone(),
        })
    }

    /// Finds a socket of the account: by id or DNS name, else by name, else by the beginning of its id. Ids come first,
    /// because they never change; so no name can hide another socket.
    pub(crate) async fn find_socket(
        &self,
        account: AccountId,
        id_or_name: &str,
    ) -> Result<sallyport_model::Socket, ApiError> {
        if let Ok(id) = id_or_name.parse::<SocketId>() {
            return self.store.socket(account, id).await?.ok_or_else(|| ApiError::not_found("socket"));
        }
        if let Some(socket) = self.socket_named(account, &id_or_name.to_ascii_lowercase()).await? {
            return Ok(socket);
        }
        if let Ok(name) = id_or_name.parse::<DisplayName>()
            && let Some(socket) = self.store.socket_by_display_name(account, &name).await?
        {
            return Ok(socket);
        }
        let found = match id_or_name.parse::<ShortId>() {
            Ok(start) => self.store.socket_by_short_id(account, &start).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| ApiError::not_found("socket"))
    }

    /// The account's socket with this DNS name, or its first label.
    pub(crate) async fn socket_named(
        &self,
        account: AccountId,
        name: &str,
    ) -> Result<Option<sallyport_model::Socket>, ApiError> {
        let label = name.strip_suffix(&self.config.domain).and_then(|name| name.strip_suffix('.'));
        let Ok(name) = label.unwrap_or(name).parse::<SocketName>() else { return Ok(None) };
        Ok(self.store.socket_by_name(account, &name).await?)
    }

    /// Makes a socket; edges have it when this returns. Also returns the text of the response.
    pub(crate) async fn create_socket(
        &self,
        account: AccountId,
        create: CreateSocket,
        (lifetime, name_conflict): (Lifetime, NameConflict),
        keyed: Option<&IdempotencyKey>,
        by_own: bool,
    ) -> Result<Creation<(sallyport_model::Socket, String)>, ApiError> {
        check_name(&create.name)?;
        self.limits.create(account, self.clock.now().monotonic)?;
        let socket_type = create.socket_type;
        let domains = self.socket_domains(socket_type, create.domains.as_deref())?.unwrap_or_default();
        self.check_label(create.label.as_ref())?;
        self.check_socket_domains(account, &domains).await?;
        only_http(socket_type, create.protected.is_some(), create.origin_protocol)?;
        let port = self.port_request(socket_type, create.port)?;
        let (change, none) = (SettingsChange::of_new(&create), SocketSettings::default());
        self.check_guard(&change)?;
        let settings = settled(&change, (&none, socket_type), socket_type, self.config.databases)?;
        check_dials(self.origin_regions(None, &change).await?.as_ref(), &settings)?;
        if settings.regions.values().any(|group| !group.capacity.is_empty()) {
            self.check_room_for_limits(account, None)?;
        }
        if let Some(identity) = &settings.identity {
            self.need_providers(account, &identity.providers, &[]).await?;
        }
        let policies = self.policies_of_new(account, create.policies.as_deref().unwrap_or_default()).await?;
        let concerning = self.store.policies_of_new_socket(account, &policies).await?;
        check_some_client_is_admitted(&concerning, settings.identity.as_ref())?;
        self.need_authorities(account, socket_type, &settings).await?;
        let basic_auth = match create.protected {
            Some(protected) => Some(self.protect(protected).await?),
            None => None,
        };
        let idle = self.idle_holders(account, &domains).await?;
        let new = NewSocket {
            id: SocketId::from_random(random::bytes()?),
            account,
            display_name: create.name,
            name_conflict,
            label: create.label,
            socket_type,
            origin_protocol: create.origin_protocol,
            basic_auth,
            port,
            max_ports: self.config.ports_per_account,
            settings,
            labels: create.labels,
            policies,
            domains: domains.clone(),
            idle: idle.clone(),
            temporary: lifetime.holder(),
            maker: lifetime.maker(),
            created_at: self.clock.now().unix_seconds,
        };
        let mut randoms = [0; MAX_NAME_TRIES];
        for random in &mut randoms {
            *random = u64::from_ne_bytes(random::bytes()?);
        }
        let lacks_provider = self.lacks_provider(account, std::iter::once(&new.settings)).await?;
        // The new socket has no route yet, which would have its policies.
        let answer = |socket: &sallyport_model::Socket| {
            let policies = concerning.iter().map(|policy| policy.name.clone()).collect();
            let domains = domains.iter().map(ToString::to_string).collect();
            let mut shown = Socket { policies, domains, ..self.socket_to_api(socket.clone(), by_own, false) };
            shown.notes.extend(self.note_on_certificate(socket));
            shown.notes.extend(note_on_logins(&concerning, socket.settings.identity.as_ref(), lacks_provider));
            serde_json::to_string(&shown).unwrap_or_default()
        };
        let creation = self.store.create_socket(new, &randoms, keyed, answer).await?;
        if let Creation::Made((socket, _)) = &creation {
            self.publish(socket.id).await?;
            for former in idle {
                self.publish(former).await?;
            }
            self.names_changed.notify_one();
            audit::set_target(&socket.name);
            tracing::info!(socket = %socket.id, name = %socket.name, r#type = %socket_type, "socket created");
        }
        Ok(creation)
    }

    /// Refuses a label that owners may not choose.
    fn check_label(&self, label: Option<&SocketName>) -> Result<(), ApiError> {
        let Some(label) = label else { return Ok(()) };
        if !self.config.labels.are_allowed {
            let detail = "this server generates the names of sockets: leave the label out, or ask the operator for \
                          --choose-labels";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "labels-not-allowed", detail));
        }
        if self.config.labels.reserved.iter().any(|reserved| reserved == label.as_str()) {
            return Err(ApiError::field("label", format!("the label {label} is reserved by the operator")));
        }
        Ok(())
    }

    /// Refuses to open a socket to everyone by removing its last gate.
    fn check_that_it_stays_shut(&self, name: &SocketName, policies: &[AttachedPolicy]) -> Result<(), ApiError> {
        if !PolicySet::of(policies, None).is_ok_and(|set| set.is_open()) {
            return Ok(());
        }
        let detail = format!(
            "nothing else limits access, so this would open {} to every client: attach a policy or set a password \
             first; with force it is done all the same",
            self.dns_name(name)
        );
        Err(ApiError::new(StatusCode::CONFLICT, "opens-sockets", detail))
    }

    /// Refuses to turn the amplification guard off if the operator requires it.
    fn check_guard(&self, change: &SettingsChange) -> Result<(), ApiError> {
        if !self.config.requires_amplification_guard || !change.is_without_guard() {
            return Ok(());
        }
        let detail = "this server requires the amplification guard of all udp sockets: leave the option out, or ask \
                      the operator";
        Err(ApiError::new(StatusCode::FORBIDDEN, "amplification-guard-required", detail))
    }

    /// The port that a new socket asks for.
    fn port_request(&self, socket_type: SocketType, port: Option<u16>) -> Result<PortRequest, ApiError> {
        let range = &self.config.port_range;
        match port {
            None if socket_type.has_port() => Ok(PortRequest::Any(range.clone())),
            None => Ok(PortRequest::None),
            Some(_) if !socket_type.has_port() => {
                Err(ApiError::field("port", "only tcp, tls and udp sockets have a port of their own"))
            }
            Some(port) if range.contains(&port) => Ok(PortRequest::This(port)),
            Some(_) => {
                let detail = format!(
                    "this server gives out the ports from {} to {}: ask for one of them",
                    range.start(),
                    range.end()
                );
                Err(ApiError::field("port", detail))
            }
        }
    }

    /// Changes a socket; edges have the change when this returns.
    pub(crate) async fn update_socket(
        &self,
        account: AccountId,
        id_or_name: &str,
        update: UpdateSocket,
    ) -> Result<sallyport_model::Socket, ApiError> {
        self.update_socket_by(account, id_or_name, update, |_| Ok(None)).await
    }

    /// Like [`App::update_socket`], for an identity setting that depends on the socket at the time of the change.
    pub(crate) async fn update_socket_by(
        &self,
        account: AccountId,
        id_or_name: &str,
        update: UpdateSocket,
        identity: impl FnOnce(&sallyport_model::Socket) -> Result<Option<Option<IdentitySettings>>, ApiError> + Send,
    ) -> Result<sallyport_model::Socket, ApiError> {
        update.name.as_ref().map(check_name).transpose()?;
        let found = self.find_socket(account, id_or_name).await?;
        let change = SettingsChange::of_change(&update);
        self.check_guard(&change)?;
        let served = self.origin_regions(Some(found.id), &change).await?;
        let changes_identity = update.identity.is_some();
        let (mut given, force) = (given(&update), update.force);
        if let Some(Some(identity)) = &update.identity {
            let known = found.settings.identity.as_ref().map_or(&[][..], |identity| &identity.providers);
            self.need_providers(account, &identity.providers, known).await?;
        }
        let UpdateSocket { name, socket_type, origin_protocol, protected, domains: update_domains, labels, .. } =
            update;
        let protects = matches!(protected, Some(Some(_)));
        let basic_auth = match protected {
            Some(Some(protect)) => Some(Some(self.protect(protect).await?)),
            Some(None) => Some(None),
            None => None,
        };
        let domains = self.socket_domains(socket_type.unwrap_or(found.socket_type), update_domains.as_deref())?;
        if let Some(domains) = &domains {
            self.check_socket_domains(account, domains).await?;
        }
        let databases = self.config.databases;
        let change = |now: &sallyport_model::Socket, policies: Vec<AttachedPolicy>| {
            let new_type = socket_type.unwrap_or(now.socket_type);
            if new_type.has_port() != now.socket_type.has_port() {
                let detail = format!(
                    "a socket of the type {} cannot become one of the type {new_type}, since only tcp, tls and udp \
                     sockets have a port of their own: make a new one",
                    now.socket_type
                );
                return Err(ApiError::field("type", detail));
            }
            only_http(new_type, protects, origin_protocol.unwrap_or_default())?;
            let identity = identity(now)?;
            let changes_identity = changes_identity || identity.is_some();
            let change = match identity {
                Some(identity) => change.with_identity(identity),
                None => change,
            };
            let settings = settled(&change, (&now.settings, now.socket_type), new_type, databases)?;
            check_dials(served.as_ref(), &settings)?;
            if settings.regions.values().any(|group| !group.capacity.is_empty()) {
                self.check_room_for_limits(account, Some(now.id))?;
            }
            if changes_identity {
                check_some_client_is_admitted(&policies, settings.identity.as_ref())?;
            }
            let keeps_password = basic_auth.as_ref().map_or(now.basic_auth.is_some(), Option::is_some);
            // Removing the last gate of a socket needs force.
            let had_gate = now.settings.identity.is_some() || now.basic_auth.is_some();
            if had_gate && settings.identity.is_none() && !keeps_password && !force {
                self.check_that_it_stays_shut(&now.name, &policies)?;
            }
            Ok(SocketChange {
                display_name: name,
                socket_type,
                origin_protocol,
                basic_auth,
                settings: Some(settings),
                labels: labels.map(Option::unwrap_or_default),
            })
        };
        let changed = self.store.change_socket_with_policies(account, found.id, change).await?;
        let socket = changed.ok_or_else(|| ApiError::not_found("socket"))?;
        self.need_authorities(account, socket.socket_type, &socket.settings).await?;
        if let Some(domains) = &domains {
            self.lead_domains(account, socket.id, domains).await?;
        }
        self.publish(socket.id).await?;
        self.names_changed.notify_one();
        audit::set_target(&socket.name);
        if !changes_identity && found.settings.identity != socket.settings.identity {
            given.push(if socket.settings.identity.is_some() { "identity" } else { "identity=null" }.to_owned());
            given.sort_unstable();
        }
        audit::set_changed_fields(given);
        tracing::info!(socket = %socket.id, "socket changed");
        Ok(socket)
    }

    /// Deletes a socket with its tunnels; edges know it when this returns.
    pub(crate) async fn delete_socket(&self, socket: &sallyport_model::Socket) -> Result<(), ApiError> {
        if !self.store.delete_socket(socket.account, socket.id).await? {
            return Err(ApiError::not_found("socket"));
        }
        self.unpublish(&[socket.id]).await;
        self.names_changed.notify_one();
        audit::set_target(&socket.name);
        tracing::info!(socket = %socket.id, name = %socket.name, "socket deleted");
        Ok(())
    }

    /// Hashes the password for storage.
    async fn protect(&self, protect: Protect) -> Result<BasicAuth, ApiError> {
        let Protect { username, password } = protect;
        let mut errors = Vec::new();
        let mut refuse = |field: &str, detail: String| {
            errors.push(FieldError { field: format!("protected.{field}"), detail });
        };
        let chars = username.chars().count();
        if chars == 0 || chars > MAX_USERNAME_CHARS || username.contains(':') || username.chars().any(char::is_control)
        {
            refuse(
                "username",
                format!("it has 1 to {MAX_USERNAME_CHARS} characters and no colon or control character"),
            );
        }
        let text = password.expose();
        if text.is_empty() || text.len() > MAX_PASSWORD_BYTES || text.chars().any(char::is_control) {
            refuse("password", format!("it has 1 to {MAX_PASSWORD_BYTES} bytes and no control character"));
        }
        if !errors.is_empty() {
            return Err(ApiError::fields(errors));
        }
        Ok(BasicAuth { username, password_hash: self.passwords.hash(password).await? })
    }
}

/// Refuses a name that looks like an id, or like the beginning of one.
pub(super) fn check_name(name: &DisplayName) -> Result<(), ApiError> {
    let is_id = name.as_str().parse::<SocketId>().is_ok() || name.as_str().parse::<ShortId>().is_ok();
    if !is_id {
        return Ok(());
    }
    Err(ApiError::field("name", "a name that looks like an id would be taken for one: give another one"))
}

/// The names of the given fields; removed ones have the suffix `=null`.
fn given(update: &UpdateSocket) -> Vec<String> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(update) else { return Vec::new() };
    let name = |(name, value): (String, serde_json::Value)| if value.is_null() { format!("{name}=null") } else { name };
    fields.into_iter().filter(|(name, _)| name != "force").map(name).collect()
}

/// Refuses settings of HTTP at other sockets: an option without effect would be misleading.
fn only_http(socket_type: SocketType, protects: bool, origin_protocol: OriginProtocol) -> Result<(), ApiError> {
    if socket_type.is_http() {
        return Ok(());
    }
    if protects {
        let detail = "a user name and a password are for http and https sockets: use access rules for this one";
        return Err(ApiError::field("protected", detail));
    }
    if origin_protocol != OriginProtocol::Auto {
        return Err(ApiError::field("origin_protocol", "an origin protocol is for http and https sockets"));
    }
    Ok(())
}
