//! Stock ssh clients of an edge: the edge serves them, and control decides about their forwards.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use sallyport_api::{Acknowledgement, BootstrapRequest, ForwardRequest, ForwardTarget};
use sallyport_bus::SshLogins;
use sallyport_edge::{SshCaller, SshForwardAuthorizer, SshSettings, SshTarget};
use sallyport_ssh::{BoxFuture, HostKeys, TrustedAuthority};
use tracing::{debug, warn};

use super::{
    control_link::{ControlLink, LinkError},
    state::EdgeState,
};
use crate::{args::server::SshArgs, roles::ssh};

/// How long control may delay the start.
const MAX_WAIT_AT_START: Duration = Duration::from_secs(3);
/// How often the end of a forward is reported again after a failure.
const MAX_TRIES: u32 = 5;

/// The ssh settings of this edge; `None` without ssh.
pub(super) async fn settings(
    args: &SshArgs,
    state: &EdgeState,
    (ip, takes_over): (IpAddr, bool),
    logins: SshLogins,
    link: ControlLink,
) -> anyhow::Result<Option<SshSettings>> {
    let Some(ssh) = state.bootstrap.ssh.as_ref().filter(|_| !args.no_ssh) else {
        if args.listen_ssh.is_some() {
            warn!("ssh clients are not served: control has sent no ssh settings");
        }
        return Ok(None);
    };
    let damaged = "the ssh settings from control are damaged: join again";
    let keys = HostKeys::from_openssh(ssh.host_keys.iter().map(|key| key.expose())).context(damaged)?;
    let authority = TrustedAuthority::from_public_key(&ssh.authority).context(damaged)?;
    let listener = match args.listen_ssh {
        Some(address) if takes_over => ssh::wait_to_listen(address.with_default(ip)).await,
        Some(address) => Some(sallyport_net::listen(address.with_default(ip), ssh::OPTION)?),
        None => None,
    };
    // Forwards from before a restart are gone.
    let began = BootstrapRequest::default();
    let response =
        tokio::time::timeout(MAX_WAIT_AT_START, link.ask::<Acknowledgement>("/node/v1/ssh/begin", &began)).await;
    if !matches!(response, Ok(Ok(_))) {
        debug!("what former ssh clients had is removed by control in a minute");
    }
    let authorizer = Arc::new(LinkAuthorizer { link });
    Ok(Some(SshSettings { config: ssh::config(&keys, args), logins, authority, authorizer, listener }))
}

/// Asks control about the forwards of ssh clients.
struct LinkAuthorizer {
    link: ControlLink,
}

impl SshForwardAuthorizer for LinkAuthorizer {
    fn target<'a>(
        &'a self,
        caller: SshCaller<'a>,
        address: &'a str,
        port: u32,
    ) -> BoxFuture<'a, Result<SshTarget, String>> {
        Box::pin(async move {
            let SshCaller { account, key, only, address: client } = caller;
            let ask = ForwardRequest {
                account,
                key: key.map(str::to_owned),
                only: only.map(|only| only.to_string()),
                client,
                address: address.to_owned(),
                port,
            };
            let target = self.link.ask::<ForwardTarget>("/node/v1/ssh/forward", &ask).await;
            let ForwardTarget { socket, tunnel, temporary, url, port } = target.map_err(|error| match error {
                LinkError::Refused(problem) => problem.detail,
                LinkError::Unreachable(_) | LinkError::Answer(_) => {
                    debug!(%error, "a forward cannot be resolved");
                    "control cannot be reached from this edge: try again in a moment".to_owned()
                }
            })?;
            Ok(SshTarget { socket, tunnel, temporary, url, port })
        })
    }

    fn ended(&self, target: SshTarget) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let SshTarget { socket, tunnel, temporary, url, port } = target;
            if !temporary {
                return;
            }
            let ended = ForwardTarget { socket, tunnel, temporary, url, port };
            for tried in 1..=MAX_TRIES {
                match self.link.ask::<Acknowledgement>("/node/v1/ssh/ended", &ended).await {
                    Ok(Acknowledgement {}) => return,
                    Err(error) if tried == MAX_TRIES => {
                        debug!(%error, "what an ssh client had is removed by control in a minute");
                    }
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
        })
    }
}
