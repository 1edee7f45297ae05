//! Stock ssh clients of `sallyport up`: the edge serves them, control says what their forwards mean.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use sallyport_bus::SshLogins;
use sallyport_control::{Control, SshClient, SshInfo};
use sallyport_edge::{SshCaller, SshForwardAuthorizer, SshSettings, SshTarget};
use sallyport_net::ListenError;
use sallyport_ssh::{BoxFuture, HostKeys, SshConfig, UserAuthority};
use tokio::net::TcpListener;
use tracing::warn;

use super::args::{SshArgs, UpArgs};

pub(crate) const OPTION: &str = "--listen-ssh";
/// How long the process that is replaced may take to let go of the port that is for ssh alone.
const MAX_WAIT_FOR_PORT: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const PORT_POLL: Duration = Duration::from_millis(50);
/// What a client is told whose keys were refused.
const LOGIN_HINT: &str = "No key that was shown may log in as this user: `sallyport socket show` says which user to log in \
                          as, and `sallyport ssh-key add` adds a key.";
/// The head of every shell.
const GREETING: &str = "Sallyport: what is forwarded to you, and what comes through it.";

/// What is needed to serve ssh clients, found before anything is served.
pub(super) struct SshParts {
    config: SshConfig,
    listener: Option<TcpListener>,
    /// The port for ssh alone that the process to be replaced still has.
    awaited: Option<SocketAddr>,
    /// What the API tells of it.
    pub(super) info: SshInfo,
    /// Signs keys for one tunnel each.
    pub(super) authority: UserAuthority,
}

impl SshParts {
    /// Host keys from the data directory, and the port for ssh alone where one is asked for. `None`: no ssh. A process that
    /// is to be replaced may still have that port: [`SshParts::wait_for_port`] opens it then.
    pub(super) fn open(
        args: &UpArgs,
        data: &Path,
        ip: std::net::IpAddr,
        public_port: u16,
        is_takeover: bool,
    ) -> anyhow::Result<Option<Self>> {
        if args.ssh.no_ssh {
            return Ok(None);
        }
        let keys = HostKeys::open_or_create(data).context("the host keys for ssh cannot be used")?;
        let authority = UserAuthority::open_or_create(data).context("the authority for ssh keys cannot be used")?;
        let mut config = config(&keys, &args.ssh);
        config.keepalive = args.keepalive;
        config.keepalive_missed = args.keepalive_missed as usize;
        let (listener, awaited) = match args.ssh.listen_ssh.map(|address| address.with_default(ip)) {
            None => (None, None),
            Some(address) => match sallyport_net::listen(address, OPTION) {
                Err(ListenError::Taken { .. }) if is_takeover => (None, Some(address)),
                listener => (Some(listener?), None),
            },
        };
        let port = match (&listener, awaited) {
            (Some(listener), _) => listener.local_addr()?.port(),
            (None, Some(awaited)) => awaited.port(),
            (None, None) => public_port,
        };
        let host = host(&args.domain);
        let info = SshInfo { known_hosts: keys.known_hosts_lines(&host, port), host, port };
        Ok(Some(Self { config, listener, awaited, info, authority }))
    }

    /// Opens the port for ssh alone once the replaced process has let go of it. Should another program have it, ssh is
    /// served on the shared port: there is no process to go back to.
    pub(super) async fn wait_for_port(&mut self) {
        if let Some(address) = self.awaited.take() {
            self.listener = wait_to_listen(address).await;
        }
    }

    /// What the edge is told.
    pub(super) fn settings(self, logins: SshLogins, control: Control) -> SshSettings {
        let concierge = Arc::new(Concierge { control });
        SshSettings {
            config: self.config,
            logins,
            authority: self.authority.trusted(),
            concierge,
            listener: self.listener,
        }
    }
}

/// Opens the port that is for ssh alone once a replaced process has let go of it; `None`, with a warning, when it does not, or
/// another program has it.
pub(crate) async fn wait_to_listen(address: SocketAddr) -> Option<TcpListener> {
    let began = tokio::time::Instant::now();
    loop {
        match sallyport_net::listen(address, OPTION) {
            Err(ListenError::Taken { .. }) if began.elapsed() < MAX_WAIT_FOR_PORT => {
                tokio::time::sleep(PORT_POLL).await;
            }
            Ok(listener) => return Some(listener),
            Err(error) => {
                warn!(%error, "ssh is served on the shared port alone");
                return None;
            }
        }
    }
}

/// How ssh clients are served with these keys.
pub(crate) fn config(keys: &HostKeys, args: &SshArgs) -> SshConfig {
    let mut config = SshConfig::new(keys.private_keys().to_vec());
    config.login_hint = Some(LOGIN_HINT.to_owned());
    config.greeting = vec![GREETING.to_owned()];
    config.guests = args.ssh_guests;
    config
}

/// The host that ssh clients dial. Not every system knows the names below `localhost`, and ssh asks the system.
pub(crate) fn host(domain: &str) -> String {
    if domain == "localhost" || domain.ends_with(".localhost") {
        "localhost".to_owned()
    } else {
        format!("tunnel.{domain}")
    }
}

struct Concierge {
    control: Control,
}

impl SshForwardAuthorizer for Concierge {
    fn target<'a>(
        &'a self,
        caller: SshCaller<'a>,
        address: &'a str,
        port: u32,
    ) -> BoxFuture<'a, Result<SshTarget, String>> {
        Box::pin(async move {
            let account = match caller.account {
                Some(account) => account,
                None => self.control.guest_account().await.map_err(|refusal| refusal.message)?,
            };
            let SshCaller { key, only, address: from, .. } = caller;
            let client = SshClient { account, key: key.map(str::to_owned), only, address: from, holder: None };
            let target = self.control.ssh_forward_target(&client, address, port).await;
            let target = target.map_err(|refusal| refusal.message)?;
            let sallyport_control::SshTarget { socket, tunnel, temporary, url, port } = target;
            Ok(SshTarget { socket, tunnel, temporary, url, port })
        })
    }

    fn ended(&self, target: SshTarget) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let SshTarget { socket, tunnel, temporary, url, port } = target;
            let target = sallyport_control::SshTarget { socket, tunnel, temporary, url, port };
            self.control.ssh_forward_ended(&target).await;
        })
    }
}
