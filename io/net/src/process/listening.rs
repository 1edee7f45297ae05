//! The public ports.

use std::{
    io,
    net::{self, SocketAddr},
    os::fd::OwnedFd,
};

use listenfd::ListenFd;
use tokio::net::TcpListener;

use super::own_ports::OwnPorts;
use crate::tcp::{ListenError, adopt_listener, listen};

/// The name of the TLS port's socket in systemd (`FileDescriptorName=`).
const TLS_NAME: &str = "https";
/// The name of the redirecting port's socket in systemd.
const REDIRECT_NAME: &str = "http";

/// The ports of an edge. Their connections send small writes at once (TCP_NODELAY) and notice a vanished peer
/// (keepalive).
#[derive(Debug)]
pub struct Listening {
    /// TLS: clients, the API and tunnels.
    pub tls: TcpListener,
    /// Plain HTTP, which redirects to TLS.
    pub redirect: Option<TcpListener>,
    /// The ports of sockets: first those of the former process, later the open ones.
    pub own: OwnPorts,
    /// What the former process passed on of its QUIC port; empty without one.
    pub quic: Vec<OwnedFd>,
}

impl Listening {
    /// Opens the ports, inside of a tokio runtime.
    ///
    /// # Errors
    /// One sentence that names the port and what to do.
    pub fn bind(tls: SocketAddr, redirect: Option<SocketAddr>) -> Result<Self, ListenError> {
        Ok(Self {
            tls: listen(tls, "--listen")?,
            redirect: redirect.map(|address| listen(address, "--listen-http")).transpose()?,
            own: OwnPorts::default(),
            quic: Vec::new(),
        })
    }

    /// Takes over the ports that systemd opened (sd_listen_fds(3)); `None` when systemd opened none. The one named
    /// `https`, or else the first, is for TLS. The one named `http`, or else the second, redirects.
    ///
    /// Call it once, inside of a tokio runtime, before other threads change the environment: it removes the variables,
    /// so that later programs do not take the sockets for theirs.
    ///
    /// # Errors
    /// There are more than two, or one is no listening TCP socket.
    pub fn from_systemd() -> Result<Option<Self>, ListenError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut given = ListenFd::from_env();
        if given.len() == 0 {
            return Ok(None);
        }
        let names: Vec<&str> = names.split(':').collect();
        let roles = roles(given.len(), &names).map_err(ListenError::Inherited)?;
        let mut take = |index: usize| {
            inherited(&mut given, index).map_err(|error| ListenError::Inherited(format!("number {index}: {error}")))
        };
        Ok(Some(Self {
            tls: take(roles.tls)?,
            redirect: roles.redirect.map(take).transpose()?,
            own: OwnPorts::default(),
            quic: Vec::new(),
        }))
    }

    /// The address for TLS, with the real port where 0 was requested.
    ///
    /// # Errors
    /// The kernel does not give it.
    pub fn tls_addr(&self) -> io::Result<SocketAddr> {
        self.tls.local_addr()
    }

    /// The address for redirects, if there is one.
    ///
    /// # Errors
    /// The kernel does not give it.
    pub fn redirect_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.redirect.as_ref().map(TcpListener::local_addr).transpose()
    }
}

fn inherited(given: &mut ListenFd, index: usize) -> io::Result<TcpListener> {
    let listener: net::TcpListener =
        given.take_tcp_listener(index)?.ok_or_else(|| io::Error::other("the socket was not handed over"))?;
    adopt_listener(listener)
}

#[derive(Debug, PartialEq, Eq)]
struct Roles {
    tls: usize,
    redirect: Option<usize>,
}

fn roles(count: usize, names: &[&str]) -> Result<Roles, String> {
    if count > 2 {
        return Err(format!("expected at most two ({TLS_NAME} and {REDIRECT_NAME}), got {count}"));
    }
    let named = |name: &str| {
        let mut found = (0..count).filter(|index| names.get(*index) == Some(&name));
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("two are named {name}: give that unit one ListenStream, such as [::]:8443")),
            (one, None) => Ok(one),
        }
    };
    let (https, http) = (named(TLS_NAME)?, named(REDIRECT_NAME)?);
    let other_than = |taken: Option<usize>| (0..count).find(|index| Some(*index) != taken);
    let tls =
        https.or_else(|| other_than(http)).ok_or_else(|| format!("none of them is for TLS (named {TLS_NAME})"))?;
    let redirect = http.or_else(|| other_than(Some(tls)));
    Ok(Roles { tls, redirect })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_sockets_are_matched_by_name_or_else_by_order() {
        let both = |tls, redirect| Ok(Roles { tls, redirect: Some(redirect) });
        let one = Ok(Roles { tls: 0, redirect: None });
        assert_eq!(roles(1, &["https"]), one);
        assert_eq!(roles(1, &["sallyport.socket"]), one);
        assert_eq!(roles(1, &[""]), one);
        assert_eq!(roles(2, &["https", "http"]), both(0, 1));
        assert_eq!(roles(2, &["http", "https"]), both(1, 0));
        assert_eq!(roles(2, &["sallyport.socket", "sallyport.socket"]), both(0, 1));
        assert_eq!(roles(2, &["http"]), both(1, 0));
        assert!(roles(2, &["https", "https"]).unwrap_err().contains("two are named https"));
        assert!(roles(1, &["http"]).unwrap_err().contains("named https"));
        assert!(roles(3, &["https", "http", "x"]).unwrap_err().contains("at most two"));
    }
}
