//! Congestion control algorithms by name (TCP_CONGESTION).

use std::{fmt, io, str::FromStr};

use socket2::SockRef;
use tokio::net::TcpStream;

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::socket_options::make_send_room;

/// The longest name, in bytes (TCP_CA_NAME_MAX, with the zero at its end).
const MAX_NAME_BYTES: usize = 15;

/// A congestion control that this kernel offers, such as `bbr` or `cubic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Congestion(String);

/// Reason why a name cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CongestionError {
    /// The name has a wrong form.
    #[error("{0:?} is not a name of a congestion control: expected one such as bbr or cubic")]
    NoName(String),
    /// The kernel does not have it.
    #[error(
        "this kernel offers no congestion control {name}, but {offered}: load its module (modprobe tcp_{name}) or \
         choose another"
    )]
    NotOffered {
        /// The requested name.
        name: String,
        /// The names that the kernel has.
        offered: String,
    },
    /// The user may not use it.
    #[error(
        "this user may use only {allowed} for congestion control, not {name}: add it to \
         net.ipv4.tcp_allowed_congestion_control"
    )]
    NotAllowed {
        /// The requested name.
        name: String,
        /// The names that the user may use.
        allowed: String,
    },
    /// The system offers no choice.
    #[error("congestion control cannot be chosen here: {0}")]
    Unsupported(String),
}

impl Congestion {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Sets it on a connection, and enlarges the send buffer where the process has CAP_NET_ADMIN: a congestion control
    /// is chosen for paths that are long or lose packets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&self, stream: &TcpStream) -> io::Result<()> {
        self.set_on(&SockRef::from(stream))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn set_on(&self, socket: &SockRef<'_>) -> io::Result<()> {
        socket.set_tcp_congestion(self.0.as_bytes())?;
        make_send_room(socket);
        Ok(())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn set_on(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Congestion {
    type Err = CongestionError;

    /// Parses a name, and asks the kernel for it.
    fn from_str(text: &str) -> Result<Self, CongestionError> {
        let is_name = (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !is_name {
            return Err(CongestionError::NoName(text.to_owned()));
        }
        let congestion = Self(text.to_owned());
        match tried(&congestion) {
            Ok(()) => Ok(congestion),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CongestionError::NotOffered { name: congestion.0, offered: names("available") })
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(CongestionError::NotAllowed { name: congestion.0, allowed: names("allowed") })
            }
            Err(error) => Err(CongestionError::Unsupported(error.to_string())),
        }
    }
}

fn tried(congestion: &Congestion) -> io::Result<()> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    congestion.set_on(&SockRef::from(&socket))
}

/// The names in `net.ipv4.tcp_{which}_congestion_control`.
fn names(which: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"));
    let text = text.unwrap_or_default();
    let names: Vec<&str> = text.split_whitespace().collect();
    if names.is_empty() { "an unknown list".to_owned() } else { names.join(", ") }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn listed_algorithms_can_be_chosen_and_others_are_refused_with_the_list() {
        // Every Linux has reno.
        let reno: Congestion = "reno".parse().unwrap();
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, Some(socket2::Protocol::TCP)).unwrap();
        reno.set_on(&SockRef::from(&socket)).unwrap();
        let name = socket.tcp_congestion().unwrap();
        assert!(name.starts_with(b"reno"), "{name:?}");
        // A larger buffer than the kernel's limit needs CAP_NET_ADMIN.
        let tried = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        match rustix::net::sockopt::set_socket_send_buffer_size_force(&tried, 16 << 20) {
            Ok(()) => {
                assert_eq!(socket.send_buffer_size().unwrap(), 32 << 20);
                assert_eq!(socket.tcp_notsent_lowat().unwrap(), 1 << 20);
            }
            Err(error) => {
                println!("no room beyond the kernel's without CAP_NET_ADMIN: {error}");
                assert_eq!(socket.tcp_notsent_lowat().unwrap(), 0);
            }
        }
        let error = "warpdrive".parse::<Congestion>().unwrap_err().to_string();
        assert!(error.contains("no congestion control warpdrive") && error.contains("reno"), "{error}");
        for bad in ["", "a name", "sixteen-letters-", "b\u{e9}b\u{e9}"] {
            assert_eq!(bad.parse::<Congestion>(), Err(CongestionError::NoName(bad.to_owned())));
        }
    }
}
