//! `sallyport version`.

use serde::Serialize;

use crate::output::Output;

#[derive(Serialize)]
struct Version {
    name: &'static str,
    version: &'static str,
    tunnel_protocol: u16,
    target: String,
}

/// Prints what this program is.
pub(crate) fn run(output: &Output) -> anyhow::Result<()> {
    let version = Version {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        tunnel_protocol: TUNNEL_PROTOCOL,
        target: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    output.data(&version, |it| {
        format!("{} {} ({}, tunnel protocol {})", it.name, it.version, it.target, it.tunnel_protocol)
    })
}

/// The version of docs/tunnel-protocol.md that connectors of this program speak.
const TUNNEL_PROTOCOL: u16 = 1;

#[cfg(test)]
mod tests {
    #[test]
    fn the_protocol_is_the_one_that_is_spoken() {
        assert_eq!(super::TUNNEL_PROTOCOL, sallyport_wire::VERSION);
    }
}
