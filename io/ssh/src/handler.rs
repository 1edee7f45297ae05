//! What the SSH library asks of one connection.

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc, time::Duration};

use russh::{
    Channel, ChannelId, ChannelWriteHalf, MethodKind, MethodSet, Pty, Sig,
    keys::{Certificate, PublicKey, ssh_key::certificate::CertType},
    server::{Auth, ChannelOpenHandle, Msg, PublicKeyOffer, Response, Session, VerifiedPublicKey},
};
use tokio::{task::JoinHandle, time::timeout};
use tracing::debug;

use crate::{
    Attempt, Connection, Console, Credential, Forward, ForwardRefusal, Verdict,
    config::{GATE_TIME, MAX_SESSION_CHANNELS, MIN_RSA_BITS},
    connection::Inner,
    server::Shared,
    stats::{add, count},
};

/// The longest user name that the gate is asked about, in bytes.
const MAX_USER_BYTES: usize = 255;
/// The longest address of a forward, in bytes; the longest name that there can be (RFC 1035 section 2.3.4).
const MAX_ADDRESS_BYTES: usize = 255;
/// The stream of a session channel that is the client's standard error (RFC 4254 section 5.2).
const STDERR: u32 = 1;
const NO_COMMANDS: &str = "this server runs no commands and transfers no files: it takes ssh -R only, for example ssh -R 80:localhost:8000\r\n";
/// What a shell shows of a client that has asked for no forward.
const NO_FORWARD: &str = "nothing is forwarded yet: ask for it with -R, for example -R 80:localhost:8000";

pub(crate) struct Handler {
    server: Arc<Shared>,
    connection: Arc<Inner>,
    /// Whether a forward was asked for, in vain or not.
    has_asked: bool,
    /// Whether a signature with SHA-1 was refused.
    has_refused_sha1: bool,
    sessions: HashMap<ChannelId, SessionChannel>,
}

/// A channel on which a client may start a shell.
struct SessionChannel {
    /// Taken when the shell starts.
    write: Option<ChannelWriteHalf<Msg>>,
    has_terminal: bool,
    shell: Option<Shell>,
}

/// A shell that shows the console; ended by dropping it.
struct Shell {
    console: Console,
    task: JoinHandle<()>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.task.abort();
        self.console.detach();
    }
}

impl Handler {
    pub(crate) fn new(server: Arc<Shared>, connection: Arc<Inner>) -> Self {
        Self { server, connection, has_asked: false, has_refused_sha1: false, sessions: HashMap::new() }
    }

    /// Asks the gate; a good attempt that is final becomes the login.
    async fn ask(&self, user: &str, credential: Credential<'_>) -> Auth {
        let stats = self.connection.stats();
        let is_counted = !matches!(credential, Credential::Nothing);
        let verdict = if user.len() > MAX_USER_BYTES || self.connection.is_closing() {
            Verdict::Refuse
        } else {
            let attempt = Attempt { user, peer: self.connection.peer(), credential };
            let answer = timeout(GATE_TIME, self.server.gate.authenticate(attempt)).await;
            answer.unwrap_or_else(|_| {
                debug!("a login was refused: no decision in time");
                Verdict::Refuse
            })
        };
        match verdict {
            Verdict::Accept(name) => {
                if !matches!(credential, Credential::Offered(_) | Credential::OfferedCertificate(_)) {
                    self.connection.set_login(user, name);
                }
                Auth::Accept
            }
            Verdict::Refuse => {
                if is_counted {
                    count(&stats.logins_refused);
                }
                Auth::reject()
            }
        }
    }

    /// Whether the key may be used in this way; tells the gate of the first one that would sign with SHA-1.
    fn is_usable(&mut self, user: &str, key: &PublicKey, uses_sha1: bool) -> bool {
        if uses_sha1 && !self.has_refused_sha1 {
            self.has_refused_sha1 = true;
            count(&self.connection.stats().sha1_refused);
            if user.len() <= MAX_USER_BYTES {
                self.server.gate.refused_sha1(user, key, self.connection.peer());
            }
        }
        is_strong_enough(key, uses_sha1)
    }

    async fn ask_forward(&self, forward: &Forward) -> Result<crate::Granted, ForwardRefusal> {
        let (address, port) = (forward.address(), forward.requested_port());
        if self.connection.is_closing() {
            return Err(ForwardRefusal::new("this connection is about to end: connect anew"));
        }
        if address.len() > MAX_ADDRESS_BYTES || address.contains(char::is_control) || port > u32::from(u16::MAX) {
            return Err(ForwardRefusal::new(format!("a forward to port {port} is not possible: check the -R option")));
        }
        let limit = self.server.config.max_forwards_per_connection;
        if self.connection.forward_count() >= limit {
            return Err(ForwardRefusal::new(format!(
                "a connection may have {limit} forwards: use another one for port {port}"
            )));
        }
        if port != 0 && self.connection.has_forward(address, port) {
            return Err(ForwardRefusal::new(format!("port {port} is already forwarded by this connection")));
        }
        let connection = Connection::new(self.connection.clone());
        let answer = timeout(GATE_TIME, self.server.gate.forward(&connection, forward.clone())).await;
        let granted =
            answer.unwrap_or_else(|_| Err(ForwardRefusal::new("the forward was not decided in time: retry")))?;
        if port == 0 {
            if granted.port == 0 || self.connection.has_forward(address, granted.port) {
                self.server.gate.cancelled(&connection, forward);
                return Err(ForwardRefusal::new("no port could be chosen: name one in the -R option"));
            }
            forward.set_port(granted.port);
        }
        Ok(granted)
    }

    fn start_shell(&mut self, id: ChannelId) -> bool {
        let greeting = &self.server.config.greeting;
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let console = self.connection.console().clone();
        if session.write.is_none() || !console.attach() {
            return false;
        }
        let Some(write) = session.write.take() else { return false };
        let line_end = if session.has_terminal { "\r\n" } else { "\n" };
        let hint = (!self.has_asked).then_some(NO_FORWARD);
        let head: String =
            greeting.iter().map(String::as_str).chain(hint).map(|line| format!("{line}{line_end}")).collect();
        let connection = self.connection.clone();
        let task = tokio::spawn(show(connection, write, head, line_end));
        session.shell = Some(Shell { console, task });
        true
    }

    /// Says on standard error that there are no commands here.
    fn refuse_command(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        session.channel_success(id)?;
        session.extended_data(id, STDERR, NO_COMMANDS)?;
        session.exit_status_request(id, 1)?;
        session.eof(id)?;
        session.close(id)?;
        self.sessions.remove(&id);
        Ok(())
    }
}

/// Writes the console's lines to a shell until it ends.
async fn show(connection: Arc<Inner>, write: ChannelWriteHalf<Msg>, head: String, line_end: &'static str) {
    let mut text = Some(head);
    while let Some(lines) = text {
        // Waits for the window of this channel only.
        if write.data_bytes(lines).await.is_err() {
            return;
        }
        text = connection.console().next(line_end).await;
    }
    let status = connection.ending().map_or(0, |ending| ending.status);
    // An error says that the connection is over, and then there is nobody to tell.
    let _ = write.exit_status(status).await;
    let _ = write.eof().await;
    let _ = write.close().await;
}

/// Whether keys typed in a shell ask for the end: Ctrl-C, Ctrl-D, q.
fn asks_to_quit(data: &[u8]) -> bool {
    data.iter().any(|byte| matches!(byte, 0x03 | 0x04 | b'q' | b'Q'))
}

fn is_strong_enough(key: &PublicKey, uses_sha1: bool) -> bool {
    let rsa_bits = key.key_data().rsa().map(|rsa| rsa.key_size() as usize);
    !uses_sha1 && rsa_bits.is_none_or(|bits| bits >= MIN_RSA_BITS)
}

/// Whether a certificate is for users and asks for nothing that is not known here: critical options are refused as long as
/// there is none. The library has checked the dates and the signature.
fn is_fit(certificate: &Certificate) -> bool {
    certificate.cert_type() == CertType::User && certificate.critical_options().is_empty()
}

fn is_sha1(algorithm: &russh::keys::Algorithm) -> bool {
    matches!(algorithm, russh::keys::Algorithm::Rsa { hash: None })
}

impl russh::server::Handler for Handler {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, Self::Error> {
        Ok(self.server.config.banner.as_ref().map(|banner| format!("{}\r\n", banner.trim_end())))
    }

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Self::Error> {
        Ok(self.ask(user, Credential::Nothing).await)
    }

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Self::Error> {
        if !self.is_usable(user, offer.public_key, is_sha1(offer.algorithm)) {
            return Ok(Auth::reject());
        }
        match offer.certificate {
            Some(certificate) if is_fit(certificate) => {
                Ok(self.ask(user, Credential::OfferedCertificate(certificate)).await)
            }
            Some(_) => {
                count(&self.connection.stats().logins_refused);
                Ok(Auth::reject())
            }
            None => Ok(self.ask(user, Credential::Offered(offer.public_key)).await),
        }
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if !self.is_usable(user, key.public_key, is_sha1(key.algorithm)) {
            return Ok(Auth::reject());
        }
        Ok(self.ask(user, Credential::Key(key.public_key)).await)
    }

    async fn auth_openssh_certificate(&mut self, user: &str, certificate: &Certificate) -> Result<Auth, Self::Error> {
        if !is_fit(certificate) {
            count(&self.connection.stats().logins_refused);
            return Ok(Auth::reject());
        }
        Ok(self.ask(user, Credential::Certificate(certificate)).await)
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        let config = &self.server.config;
        if config.guests && response.is_none() {
            let verdict = self.ask(user, Credential::Guest).await;
            if verdict == Auth::Accept {
                return Ok(verdict);
            }
        }
        match (&config.login_hint, response) {
            (Some(hint), None) => Ok(Auth::Partial {
                name: Cow::Borrowed(""),
                instructions: Cow::Owned(hint.clone()),
                prompts: Cow::Borrowed(&[]),
            }),
            // Once is enough.
            _ => Ok(Auth::Reject {
                proceed_with_methods: Some(MethodSet::from(&[MethodKind::PublicKey][..])),
                partial_success: false,
            }),
        }
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), Self::Error> {
        count(&self.connection.stats().logins);
        let connection = Connection::new(self.connection.clone());
        debug!(connection = connection.id(), login = connection.login(), "ssh login");
        let is_logged_in = self.connection.logged_in(session.handle(), || self.server.gate.opened(&connection));
        if is_logged_in { Ok(()) } else { Err(russh::Error::Disconnect) }
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        self.has_asked = true;
        let forward = Forward::new(self.connection.clone(), address, *port, self.server.config.open_time);
        match self.ask_forward(&forward).await {
            Ok(granted) => {
                *port = forward.port();
                if !self.connection.add_forward(&forward) {
                    self.server.gate.cancelled(&forward.connection(), &forward);
                    return Err(russh::Error::Disconnect);
                }
                count(&self.connection.stats().forwards);
                self.server.gate.granted(&forward);
                granted.lines.iter().for_each(|line| self.connection.console().line(line));
                Ok(true)
            }
            Err(refusal) => {
                count(&self.connection.stats().forwards_refused);
                debug!(connection = forward.connection().id(), %refusal, "ssh forward refused");
                self.connection.console().line(&refusal.message);
                session.debug(true, &refusal.message, "en")?;
                Ok(false)
            }
        }
    }

    async fn cancel_tcpip_forward(
        &mut self,
        address: &str,
        port: u32,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let Some(forward) = self.connection.remove_forward(address, port) else { return Ok(false) };
        self.server.gate.cancelled(&forward.connection(), &forward);
        Ok(true)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        if self.sessions.len() >= MAX_SESSION_CHANNELS || self.connection.is_closing() {
            reply.reject(russh::ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let id = channel.id();
        let (_, write) = channel.split();
        self.sessions.insert(id, SessionChannel { write: Some(write), has_terminal: false, shell: None });
        reply.accept().await;
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width_pixels: u32,
        _height_pixels: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        match self.sessions.get_mut(&channel) {
            Some(state) => {
                state.has_terminal = true;
                session.channel_success(channel)
            }
            None => session.channel_failure(channel),
        }
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        if self.start_shell(channel) { session.channel_success(channel) } else { session.channel_failure(channel) }
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.refuse_command(channel, session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.refuse_command(channel, session)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        _value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single_connection: bool,
        _auth_protocol: &str,
        _auth_cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }

    async fn signal(&mut self, channel: ChannelId, signal: Sig, _session: &mut Session) -> Result<(), Self::Error> {
        if self.sessions.contains_key(&channel) && matches!(signal, Sig::INT | Sig::TERM | Sig::QUIT | Sig::HUP) {
            self.connection.ask_to_end("ended by the client", 0, Duration::ZERO);
        }
        Ok(())
    }

    async fn channel_open_confirmation(
        &mut self,
        id: ChannelId,
        _max_packet_size: u32,
        _window_size: u32,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.connection.add_channel(id);
        Ok(())
    }

    fn grants_window_on_receipt(&self, channel: ChannelId) -> bool {
        // What is typed into a shell is used at once; streams open their window when they have been read.
        self.sessions.contains_key(&channel)
    }

    fn packet_data(&mut self, channel: ChannelId, packet: &mut Vec<u8>, data: Range<usize>) {
        if let Some(inbound) = self.connection.channel(channel) {
            add(&self.connection.stats().bytes_from_clients, data.len() as u64);
            inbound.push_packet(packet, data);
        }
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _session: &mut Session) -> Result<(), Self::Error> {
        if let Some(inbound) = self.connection.channel(channel) {
            add(&self.connection.stats().bytes_from_clients, data.len() as u64);
            inbound.push(data);
        } else if let Some(state) = self.sessions.get(&channel)
            && state.has_terminal
            && state.shell.is_some()
            && asks_to_quit(data)
        {
            self.connection.ask_to_end("ended by the client", 0, Duration::ZERO);
        }
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        // In a shell it says that the client's input has ended, as with `</dev/null`; the shell goes on.
        if let Some(inbound) = self.connection.channel(channel) {
            inbound.eof();
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        if let Some(inbound) = self.connection.channel(channel) {
            inbound.closed();
            self.connection.forget_channel(channel);
        }
        self.sessions.remove(&channel);
        Ok(())
    }
}
