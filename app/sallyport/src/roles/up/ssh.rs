//! Stock ssh clients of `sallyport up`: the edge serves them, and control decides about their forwards.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context as _;
use sallyport_bus::SshLogins;
use sallyport_control::{Control, SshClient, SshInfo};
use sallyport_edge::{SshCaller, SshForwardAuthorizer, SshSettings, SshTarget};
use sallyport_net::ListenError;
use sallyport_ssh::{BoxFuture, HostKeys, SshConfig, UserAuthority};
use tokio::net::TcpListener;

use super::UpArgs;
use crate::roles::ssh;

/// The parts of the ssh server, opened before anything is served.
pub(super) struct SshParts {
    config: SshConfig,
    listener: Option<TcpListener>,
    /// The port for ssh alone, while the replaced process still has it.
    awaited: Option<SocketAddr>,
    /// What the API shows of it.
    pub(super) info: SshInfo,
    /// Signs keys for one tunnel each.
    pub(super) authority: UserAuthority,
}

impl SshParts {
    /// Opens the host keys in the data directory, and the port for ssh alone if configured. `None` without ssh. A
    /// process to be replaced may still have that port; [`SshParts::wait_for_port`] opens it then.
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
        let mut config = ssh::config(&keys, &args.ssh);
        config.keepalive = args.keepalive;
        config.keepalive_missed = args.keepalive_missed as usize;
        let (listener, awaited) = match args.ssh.listen_ssh.map(|address| address.with_default(ip)) {
            None => (None, None),
            Some(address) => match sallyport_net::listen(address, ssh::OPTION) {
                Err(ListenError::Taken { .. }) if is_takeover => (None, Some(address)),
                listener => (Some(listener?), None),
            },
        };
        let port = match (&listener, awaited) {
            (Some(listener), _) => listener.local_addr()?.port(),
            (None, Some(awaited)) => awaited.port(),
            (None, None) => public_port,
        };
        let host = ssh::host(&args.domain);
        let info = SshInfo { known_hosts: keys.known_hosts_lines(&host, port), host, port };
        Ok(Some(Self { config, listener, awaited, info, authority }))
    }

    /// Opens the port for ssh alone once the replaced process has released it. If another program has the port, ssh is
    /// served on the shared port only, because the replaced process cannot come back.
    pub(super) async fn wait_for_port(&mut self) {
        if let Some(address) = self.awaited.take() {
            self.listener = ssh::wait_to_listen(address).await;
        }
    }

    /// The settings for the edge.
    pub(super) fn settings(self, logins: SshLogins, control: Control) -> SshSettings {
        let authorizer = Arc::new(ControlAuthorizer { control });
        SshSettings {
            config: self.config,
            logins,
            authority: self.authority.trusted(),
            authorizer,
            listener: self.listener,
        }
    }
}

struct ControlAuthorizer {
    control: Control,
}

impl SshForwardAuthorizer for ControlAuthorizer {
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
