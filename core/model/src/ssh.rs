//! Logins of ssh clients.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AccountId, SocketId, TunnelId};

/// Advice for the owner of an RSA key.
pub const SHA1_REFUSED: &str = "clients that sign with RSA and SHA-1 (ssh-rsa, such as mysocketctl of February 2021) \
    are not admitted with this key: use a newer client, or an Ed25519 or ECDSA key";

/// Public keys with which ssh clients log in to an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshLogin {
    /// The account. The login name is its id without hyphens.
    pub account: AccountId,
    /// The keys as in an `authorized_keys` file, without options: type, base64, comment.
    pub keys: Vec<String>,
}

/// A login for a single tunnel, from a certificate. Its text form is the certificate's key id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SshTunnelLogin {
    /// The account of the certificate.
    pub account: AccountId,
    /// The socket of the tunnel.
    pub socket: SocketId,
    /// The tunnel.
    pub tunnel: TunnelId,
}

/// The text is not a tunnel login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not of the form `account UUID socket UUID tunnel UUID`")]
pub struct SshTunnelLoginError;

impl fmt::Display for SshTunnelLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "account {} socket {} tunnel {}", self.account, self.socket, self.tunnel)
    }
}

impl FromStr for SshTunnelLogin {
    type Err = SshTunnelLoginError;

    fn from_str(text: &str) -> Result<Self, SshTunnelLoginError> {
        let mut words = text.split(' ');
        let mut after = |name| {
            let is_named = words.next() == Some(name);
            words.next().filter(|_| is_named).ok_or(SshTunnelLoginError)
        };
        let (account, socket, tunnel) = (after("account")?, after("socket")?, after("tunnel")?);
        let login = Self {
            account: account.parse().map_err(|_| SshTunnelLoginError)?,
            socket: socket.parse().map_err(|_| SshTunnelLoginError)?,
            tunnel: tunnel.parse().map_err(|_| SshTunnelLoginError)?,
        };
        // Only one spelling is accepted, with nothing after it.
        if login.to_string() == text { Ok(login) } else { Err(SshTunnelLoginError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_of_a_tunnel_has_one_spelling() {
        let login = SshTunnelLogin {
            account: AccountId::from_random([1; 16]),
            socket: SocketId::from_random([2; 16]),
            tunnel: TunnelId::from_random([3; 16]),
        };
        let text = login.to_string();
        assert_eq!(text.parse(), Ok(login));
        let upper = text.replacen(&login.tunnel.to_string(), &login.tunnel.to_string().replace('-', ""), 1);
        let (cut, longer, other) = (&text[..text.len() - 1], format!("{text} x"), text.replace("socket", "tunnel"));
        for wrong in ["", "account", cut, &longer, &other, &upper, &format!(" {text}")] {
            assert_eq!(wrong.parse::<SshTunnelLogin>(), Err(SshTunnelLoginError), "{wrong:?}");
        }
    }
}
