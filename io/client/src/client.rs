//! The API's endpoints as methods.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use sallyport_api::{
    Account, BeginDeviceLogin, ClientCertificate, ClientLogin, ClientSshCertificate, ClientToken, CreateAccount,
    CreateClientCertificate, CreateClientSshCertificate, CreateEdgeToken, CreateServiceToken,
    CreateServiceTokenCertificate, CreateSocket, CreateSshCertificate, CreateSshHostCertificate, CreateSshKey,
    CreateToken, CreateTunnel, CreatedEdgeToken, CreatedServiceToken, CreatedToken, CreatedTunnel, DeviceLogin,
    DrainEdge, Edge, EdgeToken, ExchangeClientCode, ExchangeDeviceCode, HandOver, IDEMPOTENCY_KEY, Info, Login, Logout,
    MAX_PAGE_ITEMS, ORGANISATION, Page, Problem, Refresh, Secret, ServiceToken, ServiceTokenCertificate, Session,
    Socket, SshAuthority, SshCertificate, SshHostCertificate, SshKey, Token, Tunnel, UpdateSocket, UpdateSshAuthority,
    UpdateTunnel,
};
use sallyport_model::{EdgeId, LabelSelector, ServiceTokenId, TokenId};
use sallyport_net::{Outbound, Trust};
use serde::{Serialize, de::DeserializeOwned};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    ApiAddress, ClientError, ProblemAnswer, SessionStore, SocketRef, TunnelRef, session,
    transport::{self, Answer},
};

/// The most items of a list, over all its pages.
pub const MAX_LIST_ITEMS: usize = 100_000;

/// The client's authentication.
#[derive(Clone)]
pub enum Auth {
    /// None: for creating accounts, logins and information.
    Anonymous,
    /// An API token.
    Token(Secret),
    /// A saved session.
    Saved(Arc<dyn SessionStore>),
}

/// Configuration of a client.
pub struct ClientConfig {
    /// The address of the API.
    pub address: ApiAddress,
    /// The trusted authorities.
    pub trust: Trust,
    /// The route to the API.
    pub outbound: Outbound,
    /// The authentication.
    pub auth: Auth,
    /// Name and version of the program, such as `sallyport/0.1.0`.
    pub agent: String,
}

/// A client of one API.
#[derive(Clone)]
pub struct ApiClient {
    address: ApiAddress,
    tls: Arc<rustls::ClientConfig>,
    outbound: Outbound,
    auth: Auth,
    agent: String,
    organisation: Option<HeaderValue>,
}

/// A call before it is sent.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) body: Bytes,
    pub(crate) key: Option<&'a str>,
}

impl ApiClient {
    /// Creates a client without connecting.
    ///
    /// # Errors
    /// The trusted authorities cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let tls = sallyport_net::client_config(&config.trust, &[b"http/1.1"])
            .map_err(|error| ClientError::Trust(error.to_string()))?;
        let ClientConfig { address, outbound, auth, agent, .. } = config;
        Ok(Self { address, tls, outbound, auth, agent, organisation: None })
    }

    /// The client for this organisation, by id or name, instead of the default one.
    ///
    /// # Errors
    /// It cannot be the id or the name of an organisation.
    pub fn for_organisation(mut self, organisation: &str) -> Result<Self, ClientError> {
        let value = HeaderValue::from_bytes(organisation.as_bytes());
        self.organisation = Some(value.map_err(|_| ClientError::Organisation)?);
        Ok(self)
    }

    /// The address of the API.
    #[must_use]
    pub fn address(&self) -> &ApiAddress {
        &self.address
    }

    /// The route to the API.
    pub(crate) fn outbound(&self) -> &Outbound {
        &self.outbound
    }

    /// The TLS configuration.
    pub(crate) fn tls(&self) -> &Arc<rustls::ClientConfig> {
        &self.tls
    }

    /// Information about the installation.
    ///
    /// # Errors
    /// See [`ClientError`], as for every call below.
    pub async fn info(&self) -> Result<Info, ClientError> {
        self.open(Method::GET, "/v1/info", &()).await
    }

    /// Creates an account.
    ///
    /// # Errors
    /// The address is taken, or the password is weak.
    pub async fn create_account(&self, account: &CreateAccount) -> Result<Account, ClientError> {
        self.open(Method::POST, "/v1/accounts", account).await
    }

    /// The account of the login.
    ///
    /// # Errors
    /// There is no login.
    pub async fn account(&self) -> Result<Account, ClientError> {
        self.get("/v1/account").await
    }

    /// Deletes the account of the login, with everything it owns.
    ///
    /// # Errors
    /// There is no login.
    pub async fn delete_account(&self) -> Result<(), ClientError> {
        self.delete("/v1/account").await
    }

    /// Starts a session.
    ///
    /// # Errors
    /// Address or password are wrong, or there were too many attempts.
    pub async fn login(&self, login: &Login) -> Result<Session, ClientError> {
        self.open(Method::POST, "/v1/login", login).await
    }

    /// Renews a session; the old refresh token is used up.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn refresh(&self, refresh: &Refresh) -> Result<Session, ClientError> {
        self.open(Method::POST, "/v1/login/refresh", refresh).await
    }

    /// Ends a session.
    ///
    /// # Errors
    /// The API cannot be reached.
    pub async fn logout(&self, logout: &Logout) -> Result<(), ClientError> {
        self.open(Method::POST, "/v1/logout", logout).await
    }

    /// All API tokens of the account.
    ///
    /// # Errors
    /// There is no login.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        self.list("/v1/tokens").await
    }

    /// All service tokens of the organisation.
    ///
    /// # Errors
    /// The API refuses, or cannot be reached.
    pub async fn service_tokens(&self) -> Result<Vec<ServiceToken>, ClientError> {
        self.list("/v1/service-tokens").await
    }

    /// Creates a service token.
    ///
    /// # Errors
    /// The API refuses, or cannot be reached.
    pub async fn create_service_token(&self, token: &CreateServiceToken) -> Result<CreatedServiceToken, ClientError> {
        self.send(Method::POST, "/v1/service-tokens", token).await
    }

    /// A service token.
    ///
    /// # Errors
    /// The organisation has no such token.
    pub async fn service_token(&self, token: ServiceTokenId) -> Result<ServiceToken, ClientError> {
        self.get(&format!("/v1/service-tokens/{token}")).await
    }

    /// Issues a client certificate for a service token.
    ///
    /// # Errors
    /// The API refuses, or cannot be reached.
    pub async fn create_service_token_certificate(
        &self,
        token: ServiceTokenId,
        certificate: &CreateServiceTokenCertificate,
    ) -> Result<ServiceTokenCertificate, ClientError> {
        self.send(Method::POST, &format!("/v1/service-tokens/{token}/certificate"), certificate).await
    }

    /// Revokes a service token.
    ///
    /// # Errors
    /// The organisation has no such token.
    pub async fn delete_service_token(&self, token: ServiceTokenId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/service-tokens/{token}")).await
    }

    /// All edges of the installation.
    ///
    /// # Errors
    /// The API refuses, or cannot be reached.
    pub async fn edges(&self) -> Result<Vec<Edge>, ClientError> {
        self.list("/v1/edges").await
    }

    /// Removes an edge.
    ///
    /// # Errors
    /// There is no such edge.
    pub async fn delete_edge(&self, edge: EdgeId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/edges/{edge}")).await
    }

    /// Drains an edge.
    ///
    /// # Errors
    /// There is no such edge, or no other live one.
    pub async fn drain_edge(&self, edge: EdgeId, how: &DrainEdge) -> Result<Edge, ClientError> {
        self.send(Method::POST, &format!("/v1/edges/{edge}/drain"), how).await
    }

    /// Ends draining an edge.
    ///
    /// # Errors
    /// There is no such edge.
    pub async fn resume_edge(&self, edge: EdgeId) -> Result<Edge, ClientError> {
        let path = format!("/v1/edges/{edge}/resume");
        self.call(Call { method: Method::POST, path: &path, body: Bytes::new(), key: None }).await
    }

    /// Creates a join token for one edge.
    ///
    /// # Errors
    /// The API refuses, or cannot be reached.
    pub async fn create_edge_token(&self, token: &CreateEdgeToken) -> Result<CreatedEdgeToken, ClientError> {
        self.send(Method::POST, "/v1/edge-tokens", token).await
    }

    /// The join tokens, used ones included.
    ///
    /// # Errors
    /// The API refuses, or cannot be reached.
    pub async fn edge_tokens(&self) -> Result<Vec<EdgeToken>, ClientError> {
        self.list("/v1/edge-tokens").await
    }

    /// Removes a join token.
    ///
    /// # Errors
    /// There is no such token.
    pub async fn delete_edge_token(&self, id: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/edge-tokens/{}", utf8_percent_encode(id, NON_ALPHANUMERIC))).await
    }

    /// Makes another account the owner of the installation.
    ///
    /// # Errors
    /// There is no such account, or the caller is not the owner.
    pub async fn hand_over(&self, to: &HandOver) -> Result<(), ClientError> {
        self.send(Method::PUT, "/v1/installation/owner", to).await
    }

    /// Creates an API token.
    ///
    /// # Errors
    /// It has more permissions than the caller.
    pub async fn create_token(&self, token: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.send(Method::POST, "/v1/tokens", token).await
    }

    /// Revokes an API token.
    ///
    /// # Errors
    /// There is no token with this id.
    pub async fn delete_token(&self, token: TokenId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/tokens/{token}")).await
    }

    /// All sockets of the account.
    ///
    /// # Errors
    /// There is no login.
    pub async fn sockets(&self) -> Result<Vec<Socket>, ClientError> {
        self.sockets_with(&[]).await
    }

    /// All sockets with these labels, oldest first.
    ///
    /// # Errors
    /// There is no login, or there are too many labels.
    pub async fn sockets_with(&self, labels: &[LabelSelector]) -> Result<Vec<Socket>, ClientError> {
        self.list(&with_labels("/v1/sockets", labels)).await
    }

    /// Creates a socket. The key makes the call idempotent: it is repeated if the first answer is lost.
    ///
    /// # Errors
    /// A value is invalid.
    pub async fn create_socket(&self, socket: &CreateSocket, key: &str) -> Result<Socket, ClientError> {
        let call = || Call { method: Method::POST, path: "/v1/sockets", body: json(socket), key: Some(key) };
        match self.call(call()).await {
            Err(error) if error.is_ambiguous() => self.call(call()).await,
            result => result,
        }
    }

    /// One socket.
    ///
    /// # Errors
    /// The account has none with this id or name.
    pub async fn socket(&self, socket: &SocketRef) -> Result<Socket, ClientError> {
        self.get(&format!("/v1/sockets/{}", socket.segment())).await
    }

    /// Changes a socket.
    ///
    /// # Errors
    /// The account has none with this id or name, or a value is invalid.
    pub async fn update_socket(&self, socket: &SocketRef, update: &UpdateSocket) -> Result<Socket, ClientError> {
        self.send(Method::PATCH, &format!("/v1/sockets/{}", socket.segment()), update).await
    }

    /// Deletes a socket and its tunnels.
    ///
    /// # Errors
    /// The account has none with this id or name.
    pub async fn delete_socket(&self, socket: &SocketRef) -> Result<(), ClientError> {
        self.delete(&format!("/v1/sockets/{}", socket.segment())).await
    }

    /// All tunnels of a socket.
    ///
    /// # Errors
    /// The account has no such socket.
    pub async fn tunnels(&self, socket: &SocketRef) -> Result<Vec<Tunnel>, ClientError> {
        self.tunnels_with(socket, &[]).await
    }

    /// The socket's tunnels with these labels, oldest first.
    ///
    /// # Errors
    /// The account has no such socket, or there are too many labels.
    pub async fn tunnels_with(&self, socket: &SocketRef, labels: &[LabelSelector]) -> Result<Vec<Tunnel>, ClientError> {
        self.list(&with_labels(&format!("/v1/sockets/{}/tunnels", socket.segment()), labels)).await
    }

    /// Creates a tunnel.
    ///
    /// # Errors
    /// The account has no such socket, or the socket has reached its limit of tunnels.
    pub async fn create_tunnel(&self, socket: &SocketRef, tunnel: &CreateTunnel) -> Result<CreatedTunnel, ClientError> {
        self.send(Method::POST, &format!("/v1/sockets/{}/tunnels", socket.segment()), tunnel).await
    }

    /// Changes a tunnel.
    ///
    /// # Errors
    /// The account has no such socket or tunnel, or a value is invalid.
    pub async fn update_tunnel(
        &self,
        socket: &SocketRef,
        tunnel: &TunnelRef,
        update: &UpdateTunnel,
    ) -> Result<Tunnel, ClientError> {
        self.send(Method::PATCH, &format!("/v1/sockets/{}/tunnels/{}", socket.segment(), tunnel.segment()), update)
            .await
    }

    /// One tunnel.
    ///
    /// # Errors
    /// The account has no such socket or tunnel.
    pub async fn tunnel(&self, socket: &SocketRef, tunnel: &TunnelRef) -> Result<Tunnel, ClientError> {
        self.get(&format!("/v1/sockets/{}/tunnels/{}", socket.segment(), tunnel.segment())).await
    }

    /// Deletes a tunnel.
    ///
    /// # Errors
    /// The account has no such socket or tunnel.
    pub async fn delete_tunnel(&self, socket: &SocketRef, tunnel: &TunnelRef) -> Result<(), ClientError> {
        self.delete(&format!("/v1/sockets/{}/tunnels/{}", socket.segment(), tunnel.segment())).await
    }

    /// Replaces the credential of a tunnel; the old one is revoked.
    ///
    /// # Errors
    /// The account has no such socket or tunnel.
    pub async fn renew_credential(&self, socket: &SocketRef, tunnel: &TunnelRef) -> Result<CreatedTunnel, ClientError> {
        let path = format!("/v1/sockets/{}/tunnels/{}/credential", socket.segment(), tunnel.segment());
        self.call(Call { method: Method::POST, path: &path, body: Bytes::new(), key: None }).await
    }

    /// Signs an ssh key, so that an ssh client can log in for this one tunnel.
    ///
    /// # Errors
    /// The account has no such socket or tunnel, the key is not accepted, or the server does not accept ssh clients.
    pub async fn sign_ssh_key(
        &self,
        socket: &SocketRef,
        tunnel: &TunnelRef,
        key: &CreateSshCertificate,
    ) -> Result<SshCertificate, ClientError> {
        self.send(
            Method::POST,
            &format!("/v1/sockets/{}/tunnels/{}/ssh-certificate", socket.segment(), tunnel.segment()),
            key,
        )
        .await
    }

    /// The person who has logged in with a program's token.
    ///
    /// # Errors
    /// The login has ended.
    pub async fn client_login(&self) -> Result<ClientLogin, ClientError> {
        self.get("/v1/client").await
    }

    /// Ends the login of the client's token, at all sockets.
    ///
    /// # Errors
    /// The login had ended before, or the API cannot be reached.
    pub async fn end_client_login(&self) -> Result<(), ClientError> {
        self.delete("/v1/client").await
    }

    /// Exchanges the code from a browser for a token.
    ///
    /// # Errors
    /// The code is invalid.
    pub async fn exchange_client_code(&self, code: &ExchangeClientCode) -> Result<ClientToken, ClientError> {
        self.open(Method::POST, "/v1/client/token", code).await
    }

    /// Starts a login with a browser on another device.
    ///
    /// # Errors
    /// There is no such socket, or it requires no login.
    pub async fn begin_device_login(&self, begin: &BeginDeviceLogin) -> Result<DeviceLogin, ClientError> {
        self.open(Method::POST, "/v1/client/device", begin).await
    }

    /// Polls whether the person has agreed.
    ///
    /// # Errors
    /// The login is not agreed yet, or has ended: the code of the problem distinguishes the two.
    pub async fn exchange_device_code(&self, code: &ExchangeDeviceCode) -> Result<ClientToken, ClientError> {
        self.open(Method::POST, "/v1/client/device/token", code).await
    }

    /// Issues a client certificate for a socket, with a program's token.
    ///
    /// # Errors
    /// The login has ended, or the socket does not admit the person.
    pub async fn client_certificate(&self, key: &CreateClientCertificate) -> Result<ClientCertificate, ClientError> {
        self.send(Method::POST, "/v1/client/tls-certificate", key).await
    }

    /// Issues an ssh certificate, with a program's token.
    ///
    /// # Errors
    /// The login has ended, or the socket does not admit the person.
    pub async fn client_ssh_certificate(
        &self,
        key: &CreateClientSshCertificate,
    ) -> Result<ClientSshCertificate, ClientError> {
        self.send(Method::POST, "/v1/client/ssh-certificate", key).await
    }

    /// The organisation's authority for ssh keys.
    ///
    /// # Errors
    /// There is no login.
    pub async fn ssh_authority(&self) -> Result<SshAuthority, ClientError> {
        self.get("/v1/ssh-authority").await
    }

    /// Changes the settings of the organisation's authority for ssh keys.
    ///
    /// # Errors
    /// A value is invalid.
    pub async fn update_ssh_authority(&self, update: &UpdateSshAuthority) -> Result<SshAuthority, ClientError> {
        self.send(Method::PATCH, "/v1/ssh-authority", update).await
    }

    /// Signs the host key of the origin of a socket.
    ///
    /// # Errors
    /// The account has no such socket, or the key is not accepted.
    pub async fn sign_ssh_host_key(
        &self,
        socket: &SocketRef,
        key: &CreateSshHostCertificate,
    ) -> Result<SshHostCertificate, ClientError> {
        self.send(Method::POST, &format!("/v1/sockets/{}/ssh-host-certificate", socket.segment()), key).await
    }

    /// All ssh keys of the account.
    ///
    /// # Errors
    /// There is no login.
    pub async fn ssh_keys(&self) -> Result<Vec<SshKey>, ClientError> {
        self.list("/v1/ssh-keys").await
    }

    /// Adds an ssh key to the account.
    ///
    /// # Errors
    /// The key is not accepted, or was added already.
    pub async fn create_ssh_key(&self, key: &CreateSshKey) -> Result<SshKey, ClientError> {
        self.send(Method::POST, "/v1/ssh-keys", key).await
    }

    /// Removes an ssh key from the account.
    ///
    /// # Errors
    /// The account has none with this id.
    pub async fn delete_ssh_key(&self, key: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/ssh-keys/{key}")).await
    }

    /// A call without authentication.
    pub(crate) async fn open<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = if method == Method::GET { Bytes::new() } else { json(body) };
        self.read(&self.fetch_as(&Call { method, path, body, key: None }, None).await?)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Call { method: Method::GET, path, body: Bytes::new(), key: None }).await
    }

    /// The text at a public path.
    pub(crate) async fn text(&self, path: &str) -> Result<String, ClientError> {
        let call = Call { method: Method::GET, path, body: Bytes::new(), key: None };
        let body = self.fetch_as(&call, None).await?;
        String::from_utf8(body.into()).map_err(|error| self.unusable(error.to_string()))
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.call(Call { method: Method::DELETE, path, body: Bytes::new(), key: None }).await
    }

    pub(crate) async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        self.call(Call { method, path, body: json(body), key: None }).await
    }

    /// All pages of a list.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, ClientError> {
        let mut items: Vec<T> = Vec::new();
        let mut after: Option<String> = None;
        let first = format!("{path}{}limit={MAX_PAGE_ITEMS}", if path.contains('?') { '&' } else { '?' });
        loop {
            let query = match &after {
                Some(after) => format!("{first}&after={}", query_value(after)),
                None => first.clone(),
            };
            let page: Page<T> = self.get(&query).await?;
            let is_empty = page.items.is_empty();
            items.extend(page.items);
            if items.len() > MAX_LIST_ITEMS || (is_empty && page.next.is_some()) {
                return Err(self.unusable("a list without an end".to_owned()));
            }
            after = page.next;
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    /// An authenticated call; an expired session is renewed once.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, ClientError> {
        self.read(&self.fetch(call).await?)
    }

    /// The raw answer to a call. This part is not generic, so that it is compiled once.
    async fn fetch(&self, call: Call<'_>) -> Result<Bytes, ClientError> {
        let store = match &self.auth {
            Auth::Anonymous => return Err(self.not_logged_in().await),
            Auth::Token(token) => return self.fetch_as(&call, Some(token)).await,
            Auth::Saved(store) => store.as_ref(),
        };
        let Some(mut session) = store.load()? else { return Err(self.not_logged_in().await) };
        let mut renewed = false;
        if !session::is_fresh(&session, OffsetDateTime::now_utc()) {
            session = Box::pin(session::renew(self, store, &session)).await?;
            renewed = true;
        }
        match self.fetch_as(&call, Some(&session.access_token)).await {
            // The clocks may differ, and the server may have restarted with new keys.
            Err(error) if error.status() == Some(401) && !renewed => {
                let session = Box::pin(session::renew(self, store, &session)).await?;
                self.fetch_as(&call, Some(&session.access_token)).await
            }
            result => result,
        }
    }

    /// The error of a missing login, or the error of reaching the API, which is more useful.
    async fn not_logged_in(&self) -> ClientError {
        match self.info().await {
            Err(
                error @ (ClientError::Unreachable { .. } | ClientError::Untrusted { .. } | ClientError::Lapsed { .. }),
            ) => error,
            _ => ClientError::NotLoggedIn { api: self.address.clone() },
        }
    }

    async fn fetch_as(&self, call: &Call<'_>, bearer: Option<&Secret>) -> Result<Bytes, ClientError> {
        let request = self.request(call, bearer)?;
        let Answer { status, retry_after, body } =
            transport::exchange(&self.address, self.tls.clone(), &self.outbound, request).await?;
        tracing::debug!(method = %call.method, path = call.path, status = status.as_u16(), "called the API");
        if status.is_success() {
            return Ok(body);
        }
        Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => {
                let problem = Problem { status: status.as_u16(), ..problem };
                ClientError::Problem(Box::new(ProblemAnswer { problem, retry_after }))
            }
            Err(_) => self.unusable(format!("status {status}")),
        })
    }

    /// Decodes an answer; an empty one is `null`.
    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        let body = if body.is_empty() { b"null" } else { body };
        serde_json::from_slice(body).map_err(|error| self.unusable(error.to_string()))
    }

    fn unusable(&self, reason: String) -> ClientError {
        ClientError::Answer { api: self.address.clone(), reason }
    }

    fn request(&self, call: &Call<'_>, bearer: Option<&Secret>) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(header::HOST, self.address.authority())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, &self.agent)
            .header(header::CONNECTION, "close");
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(key) = call.key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(bearer) = bearer {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", bearer.expose().trim())).map_err(|_| ClientError::Token)?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
            if let Some(organisation) = &self.organisation {
                request = request.header(ORGANISATION, organisation);
            }
        }
        request.body(Full::new(call.body.clone())).map_err(|error| self.unusable(error.to_string()))
    }
}

/// The body of a request. The API's types have text keys and no maps, so they always have a JSON form.
fn json<B: Serialize>(body: &B) -> Bytes {
    serde_json::to_vec(body).map(Bytes::from).unwrap_or_default()
}

/// Encodes the text as the value of a query parameter (RFC 3986 section 2.1).
pub(crate) fn query_value(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// The path of a list of things with these labels.
pub(crate) fn with_labels(path: &str, labels: &[LabelSelector]) -> String {
    let pairs = labels
        .iter()
        .enumerate()
        .map(|(at, label)| format!("{}label={}", if at == 0 { '?' } else { '&' }, query_value(&label.to_string())));
    std::iter::once(path.to_owned()).chain(pairs).collect()
}

/// Encodes the text as one segment of a path.
pub(crate) fn path_segment(text: &str) -> PercentEncode<'_> {
    query_value(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_cannot_add_parameters() {
        assert_eq!(query_value("a&b=c d+ü").to_string(), "a%26b%3Dc%20d%2B%C3%BC");
    }
}
