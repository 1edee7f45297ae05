//! Handles the protocol's events of one connection, and the gate's decisions.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sallyport_ssh_proto::{
    Answer, ChannelId, Credential as LoginCredential, Event, Login, SessionRequest,
    ssh_key::{Certificate, PublicKey, certificate::CertType, public::KeyData},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tracing::debug;

use crate::{
    Attempt, BoxFuture, Connection, Console, Credential, Forward, ForwardRefusal, Granted, Verdict,
    config::{GATE_TIME, MIN_RSA_BITS, REFUSAL_TIME},
    connection::Inner,
    server::ServerState,
    session::SessionError,
    shell::show,
    stats::count,
};

/// The longest address of a forward, in bytes: the longest domain name (RFC 1035 section 2.3.4).
const MAX_ADDRESS_BYTES: usize = 255;
const NO_COMMANDS: &str = "this server runs no commands and transfers no files: it takes ssh -R only, for example \
    ssh -R 80:localhost:8000\r\n";
/// Line in the shell of a client without a forward request.
const NO_FORWARD: &str = "nothing is forwarded yet: ask for it with -R, for example -R 80:localhost:8000";

/// A pending decision of the gate.
pub(crate) type PendingDecision = BoxFuture<'static, Decision>;

/// A decision of the gate.
pub(crate) enum Decision {
    /// The answer to an attempt, and the resulting login.
    Login { answer: Answer, login: Option<LoggedIn> },
    /// The answer to a forward request.
    Forward { forward: Forward, result: Result<Granted, ForwardRefusal> },
}

/// A login: the user name, and the gate's name for it.
pub(crate) struct LoggedIn {
    user: String,
    name: String,
}

pub(crate) struct Handler {
    server: Arc<ServerState>,
    connection: Arc<Inner>,
    /// Whether the client has attempted to log in.
    has_attempted: bool,
    /// Whether the client has requested a forward.
    has_asked: bool,
    /// Whether a signature with SHA-1 was refused.
    has_refused_sha1: bool,
    sessions: HashMap<ChannelId, SessionChannel>,
}

/// A channel that may run a shell.
#[derive(Default)]
struct SessionChannel {
    has_terminal: bool,
    has_started: bool,
    shell: Option<Shell>,
}

/// A shell that shows the console; ends when dropped.
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
    pub(crate) fn new(server: Arc<ServerState>, connection: Arc<Inner>) -> Self {
        Self {
            server,
            connection,
            has_attempted: false,
            has_asked: false,
            has_refused_sha1: false,
            sessions: HashMap::new(),
        }
    }

    /// Handles an event; a decision of the gate is returned as a future.
    pub(crate) fn handle(&mut self, event: Event) -> Option<PendingDecision> {
        match event {
            Event::Login(login) => return Some(self.ask_login(login)),
            Event::Forward { address, port } => {
                self.has_asked = true;
                let forward = Forward::new(self.connection.clone(), &address, port, self.server.config.open_time);
                return Some(Box::pin(ask_forward(self.server.clone(), self.connection.clone(), forward)));
            }
            Event::CancelForward { address, port } => {
                let forward = self.connection.remove_forward(&address, port);
                if let Some(forward) = &forward {
                    self.server.gate.cancelled(&forward.connection(), forward);
                }
                self.connection.link().with(|protocol| protocol.answer_request(forward.map(|_| port)));
            }
            Event::SessionOpened(channel) => {
                self.sessions.insert(channel, SessionChannel::default());
            }
            Event::SessionClosed(channel) => {
                self.sessions.remove(&channel);
                self.connection.link().release(channel);
            }
            Event::Session { channel, request, wants_reply } => self.handle_session(channel, request, wants_reply),
            Event::Typed { channel, data } => {
                let is_shell =
                    self.sessions.get(&channel).is_some_and(|state| state.has_terminal && state.shell.is_some());
                if is_shell && asks_to_quit(&data) {
                    self.connection.ask_to_end("ended by the client", 0, Duration::ZERO);
                }
            }
            // The link has woken the waiting tasks.
            Event::Opened(_) | Event::Refused { .. } | Event::Readable(_) | Event::Writable(_) | Event::Pong(_) => {}
        }
        None
    }

    /// Passes the gate's decision to the protocol.
    pub(crate) fn apply(&self, decision: Decision) -> Result<(), SessionError> {
        match decision {
            Decision::Login { answer, login } => {
                if let Some(LoggedIn { user, name }) = login {
                    self.connection.set_login(&user, name);
                    count(&self.connection.stats().logins);
                    let connection = Connection::new(self.connection.clone());
                    debug!(connection = connection.id(), login = connection.login(), "ssh login");
                    if !self.connection.logged_in(|| self.server.gate.opened(&connection)) {
                        return Err(SessionError::Ended);
                    }
                }
                self.connection.link().with(|protocol| protocol.answer_login(answer));
            }
            Decision::Forward { forward, result } => self.apply_forward(&forward, result)?,
        }
        Ok(())
    }

    fn apply_forward(&self, forward: &Forward, result: Result<Granted, ForwardRefusal>) -> Result<(), SessionError> {
        let console = self.connection.console();
        match result {
            Ok(granted) => {
                if !self.connection.add_forward(forward) {
                    self.server.gate.cancelled(&forward.connection(), forward);
                    return Err(SessionError::Ended);
                }
                count(&self.connection.stats().forwards);
                self.server.gate.granted(forward);
                granted.lines.iter().for_each(|line| console.line(line));
                self.connection.link().with(|protocol| protocol.answer_request(Some(forward.port())));
            }
            Err(refusal) => {
                count(&self.connection.stats().forwards_refused);
                debug!(connection = forward.connection().id(), %refusal, "ssh forward refused");
                console.line(&refusal.message);
                self.connection.link().with(|protocol| {
                    protocol.debug(&refusal.message);
                    protocol.answer_request(None);
                });
            }
        }
        Ok(())
    }

    /// A refusal is answered after a fixed time, whatever the reason; the first request, which queries the methods, is
    /// answered at once.
    fn ask_login(&mut self, login: Login) -> PendingDecision {
        let is_first = !std::mem::replace(&mut self.has_attempted, true);
        let refusal_at = match login.credential {
            LoginCredential::Nothing if is_first => Instant::now(),
            _ => Instant::now() + REFUSAL_TIME,
        };
        let is_usable = self.is_usable(&login);
        let (server, connection) = (self.server.clone(), self.connection.clone());
        Box::pin(async move {
            let Login { user, credential } = login;
            let ask = async |credential| match decide(&server, &connection, &user, credential).await {
                Verdict::Accept(name) => Some(name),
                Verdict::Refuse => None,
            };
            // An accepted offer is no login yet.
            let (accepted, is_offer) = match &credential {
                _ if !is_usable => (None, false),
                LoginCredential::Nothing => (ask(Credential::Nothing).await, false),
                LoginCredential::Key { key, is_proven: true } => (ask(Credential::Key(key)).await, false),
                LoginCredential::Key { key, is_proven: false } => (ask(Credential::Offered(key)).await, true),
                LoginCredential::Certificate { certificate, is_proven: true } => {
                    (ask(Credential::Certificate(certificate)).await, false)
                }
                LoginCredential::Certificate { certificate, is_proven: false } => {
                    (ask(Credential::OfferedCertificate(certificate)).await, true)
                }
                LoginCredential::Interactive if server.config.guests => (ask(Credential::Guest).await, false),
                LoginCredential::Interactive | LoginCredential::Sha1(_) | LoginCredential::Unusable => (None, false),
            };
            if let Some(name) = accepted {
                let login = (!is_offer).then_some(LoggedIn { user, name });
                return Decision::Login { answer: Answer::Accept, login };
            }
            let answer = match (&credential, &server.config.login_hint) {
                (LoginCredential::Interactive, Some(hint)) => {
                    return Decision::Login { answer: Answer::Hint(hint.clone()), login: None };
                }
                (LoginCredential::Interactive, None) => Answer::RefuseInteractive,
                _ => Answer::Refuse,
            };
            sleep_until(refusal_at).await;
            Decision::Login { answer, login: None }
        })
    }

    /// Whether the credential may be used at all; reports the first key that would sign with SHA-1 to the gate.
    fn is_usable(&mut self, login: &Login) -> bool {
        let stats = self.connection.stats();
        match &login.credential {
            LoginCredential::Nothing | LoginCredential::Interactive => true,
            LoginCredential::Key { key, .. } => is_strong_enough(key.key_data()),
            LoginCredential::Certificate { certificate, .. } => {
                let is_usable = is_fit(certificate) && is_strong_enough(certificate.public_key());
                if !is_usable {
                    count(&stats.logins_refused);
                }
                is_usable
            }
            LoginCredential::Sha1(key) => {
                if !std::mem::replace(&mut self.has_refused_sha1, true) {
                    count(&stats.sha1_refused);
                    self.log_sha1_refusal(&login.user, key);
                }
                false
            }
            LoginCredential::Unusable => false,
        }
    }

    fn log_sha1_refusal(&self, user: &str, key: &PublicKey) {
        self.server.gate.refused_sha1(user, key, self.connection.peer());
    }

    fn handle_session(&mut self, channel: ChannelId, request: SessionRequest, wants_reply: bool) {
        let link = self.connection.link().clone();
        let Some(state) = self.sessions.get_mut(&channel) else { return };
        let reply = |is_granted| {
            if wants_reply {
                link.with(|protocol| protocol.answer_session(channel, is_granted));
            }
        };
        match request {
            SessionRequest::Terminal => {
                state.has_terminal = true;
                reply(true);
            }
            SessionRequest::Shell => {
                let console = self.connection.console().clone();
                let can_start = !std::mem::replace(&mut state.has_started, true) && console.attach();
                // The answer precedes the shell's output.
                reply(can_start);
                if can_start {
                    self.start_shell(channel, console);
                }
            }
            SessionRequest::Command => {
                reply(true);
                link.with(|protocol| {
                    protocol.write_error(channel, NO_COMMANDS);
                    protocol.send_exit_status(channel, 1);
                    protocol.finish(channel);
                });
                link.release(channel);
                self.sessions.remove(&channel);
            }
            SessionRequest::Other => reply(false),
            SessionRequest::Signal(name) => {
                reply(true);
                if matches!(&*name, "INT" | "TERM" | "QUIT" | "HUP") {
                    self.connection.ask_to_end("ended by the client", 0, Duration::ZERO);
                }
            }
        }
    }

    fn start_shell(&mut self, channel: ChannelId, console: Console) {
        let Some(state) = self.sessions.get_mut(&channel) else { return };
        let line_end = if state.has_terminal { "\r\n" } else { "\n" };
        let hint = (!self.has_asked).then_some(NO_FORWARD);
        let greeting = &self.server.config.greeting;
        let head: String =
            greeting.iter().map(String::as_str).chain(hint).map(|line| format!("{line}{line_end}")).collect();
        let task = tokio::spawn(show(self.connection.clone(), channel, head, line_end));
        state.shell = Some(Shell { console, task });
    }
}

/// Asks the gate about an attempt.
async fn decide(server: &ServerState, connection: &Inner, user: &str, credential: Credential<'_>) -> Verdict {
    if connection.is_closing() {
        return Verdict::Refuse;
    }
    let attempt = Attempt { user, peer: connection.peer(), credential };
    let answer = timeout(GATE_TIME, server.gate.authenticate(attempt)).await;
    let verdict = answer.unwrap_or_else(|_| {
        debug!("a login was refused: no decision in time");
        Verdict::Refuse
    });
    if verdict == Verdict::Refuse && !matches!(credential, Credential::Nothing) {
        count(&connection.stats().logins_refused);
    }
    verdict
}

/// Asks the gate about a forward.
async fn ask_forward(server: Arc<ServerState>, connection: Arc<Inner>, forward: Forward) -> Decision {
    let result = decide_forward(&server, &connection, &forward).await;
    Decision::Forward { forward, result }
}

async fn decide_forward(
    server: &ServerState,
    connection: &Arc<Inner>,
    forward: &Forward,
) -> Result<Granted, ForwardRefusal> {
    let (address, port) = (forward.address(), forward.requested_port());
    if connection.is_closing() {
        return Err(ForwardRefusal::new("this connection is about to end: connect anew"));
    }
    if address.len() > MAX_ADDRESS_BYTES || address.contains(char::is_control) || port > u32::from(u16::MAX) {
        return Err(ForwardRefusal::new(format!("a forward to port {port} is not possible: check the -R option")));
    }
    let limit = server.config.max_forwards_per_connection;
    if connection.forward_count() >= limit {
        return Err(ForwardRefusal::new(format!(
            "a connection may have {limit} forwards: use another one for port {port}"
        )));
    }
    if port != 0 && connection.has_forward(address, port) {
        return Err(ForwardRefusal::new(format!("port {port} is already forwarded by this connection")));
    }
    let outside = Connection::new(connection.clone());
    let answer = timeout(GATE_TIME, server.gate.forward(&outside, forward.clone())).await;
    let granted = answer.unwrap_or_else(|_| Err(ForwardRefusal::new("the forward was not decided in time: retry")))?;
    if port == 0 {
        if granted.port == 0 || connection.has_forward(address, granted.port) {
            server.gate.cancelled(&outside, forward);
            return Err(ForwardRefusal::new("no port could be chosen: name one in the -R option"));
        }
        forward.set_port(granted.port);
    }
    Ok(granted)
}

/// Whether keys typed in a shell request the end: Ctrl-C, Ctrl-D, q.
fn asks_to_quit(data: &[u8]) -> bool {
    data.iter().any(|byte| matches!(byte, 0x03 | 0x04 | b'q' | b'Q'))
}

fn is_strong_enough(key: &KeyData) -> bool {
    key.rsa().is_none_or(|rsa| rsa.key_size() as usize >= MIN_RSA_BITS)
}

/// Whether a certificate is for users, currently valid, and without unknown requirements: all critical options are
/// refused. The protocol has verified the authority's signature.
fn is_fit(certificate: &Certificate) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    certificate.cert_type() == CertType::User
        && certificate.critical_options().is_empty()
        && (certificate.valid_after()..certificate.valid_before()).contains(&now)
}
