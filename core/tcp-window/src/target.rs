//! Whose sockets are meant.

use std::{fmt, net::SocketAddr, str::FromStr};

/// Whose TCP sockets are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Those of a process.
    Process(u32),
    /// Those with this local or remote port.
    Port(u16),
    /// The one with these two ends, from the side of the first.
    Flow(SocketAddr, SocketAddr),
}

/// Reason why a text names no sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetError;

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a port, pid:NUMBER, or a flow as ADDRESS:PORT-ADDRESS:PORT")
    }
}

impl std::error::Error for TargetError {}

impl Target {
    /// Whether a socket with these ends is meant. Of a process, its ends say nothing.
    #[must_use]
    pub fn has_ends(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        match *self {
            Self::Process(_) => false,
            Self::Port(port) => local.port() == port || remote.port() == port,
            Self::Flow(here, there) => (local, remote) == (here, there),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Flow(local, remote) => write!(f, "the flow {local}-{remote}"),
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        // Numbers may have a sign for the standard library.
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(pid) = text.strip_prefix("pid:") {
            let pid = pid.parse().ok().filter(|number| *number > 0 && is_number(pid));
            return pid.map(Self::Process).ok_or(TargetError);
        }
        if let Some((local, remote)) = text.split_once('-') {
            let ends = (local.parse().map_err(|_| TargetError)?, remote.parse().map_err(|_| TargetError)?);
            return Ok(Self::Flow(ends.0, ends.1));
        }
        text.parse().ok().filter(|port| *port > 0 && is_number(text)).map(Self::Port).ok_or(TargetError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_target_is_a_port_a_process_or_a_flow() {
        let of = |text: &str| text.parse::<Target>();
        assert_eq!(of("443"), Ok(Target::Port(443)));
        assert_eq!(of("pid:70000"), Ok(Target::Process(70_000)));
        let (here, there) = ("[::1]:80".parse().unwrap(), "[::1]:4000".parse().unwrap());
        assert_eq!(of("[::1]:80-[::1]:4000"), Ok(Target::Flow(here, there)));
        for bad in ["", "0", "+1", "-1", "65536", "pid:", "pid:0", "pid:+1", "a.example:80", "127.0.0.1:80-", "-"] {
            assert_eq!(of(bad), Err(TargetError), "{bad}");
        }
    }

    #[test]
    fn a_port_is_of_either_end_and_a_flow_has_a_side() {
        let (here, there) = ("127.0.0.1:80".parse().unwrap(), "127.0.0.1:4000".parse().unwrap());
        assert!(Target::Port(80).has_ends(here, there) && Target::Port(80).has_ends(there, here));
        assert!(!Target::Port(81).has_ends(here, there));
        let flow: Target = "127.0.0.1:80-127.0.0.1:4000".parse().unwrap();
        assert!(flow.has_ends(here, there) && !flow.has_ends(there, here));
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Target>();
        }
    }
}
