//! The ssh server of a role: its configuration, and the port for ssh alone.

use std::{net::SocketAddr, time::Duration};

use sallyport_net::ListenError;
use sallyport_ssh::{HostKeys, SshConfig};
use tokio::net::TcpListener;
use tracing::warn;

use crate::args::server::{SshArgs, is_of_this_machine};

pub(crate) const OPTION: &str = "--listen-ssh";
/// How long a replaced process may take to release the port for ssh alone.
const MAX_WAIT_FOR_PORT: Duration = Duration::from_secs(10);
/// How often this is checked.
const PORT_POLL: Duration = Duration::from_millis(50);
/// The hint to a client after the refusal of its keys.
const LOGIN_HINT: &str = "No key that was shown may log in as this user: `sallyport socket show` shows which user to \
                          log in as, and `sallyport ssh-key add` adds a key.";
/// The greeting of every shell.
const GREETING: &str = "Sallyport: your forwards, and the traffic through them.";

/// Opens the port for ssh alone once a replaced process has released it. `None`, with a warning, if that does not
/// happen or another program has the port.
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

/// The configuration with these keys.
pub(crate) fn config(keys: &HostKeys, args: &SshArgs) -> SshConfig {
    let mut config = SshConfig::new(keys.private_keys().to_vec());
    config.login_hint = Some(LOGIN_HINT.to_owned());
    config.greeting = vec![GREETING.to_owned()];
    config.guests = args.ssh_guests;
    config
}

/// The host that ssh clients dial. Not every resolver knows names below `localhost`, and ssh uses the system's.
pub(crate) fn host(domain: &str) -> String {
    if is_of_this_machine(domain) { "localhost".to_owned() } else { format!("tunnel.{domain}") }
}
