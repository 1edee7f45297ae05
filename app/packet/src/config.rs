//! The file of a router.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sallyport_cli::failure::{Failure, Kind};
use sallyport_xdp::Urpf;
use serde::{Deserialize, de::DeserializeOwned};

use crate::nat_config::NatSection;

/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Where routes are looked up.
    #[serde(default)]
    pub(crate) lookup: Lookup,
    /// The ports.
    #[serde(default, rename = "port")]
    pub(crate) ports: Vec<PortConfig>,
    /// Devices that stand for VLANs; devices of the kernel's kind `vlan` are found without.
    #[serde(default, rename = "vlan")]
    pub(crate) vlans: Vec<VlanConfig>,
    /// The file of the policy, beside this one.
    #[serde(default)]
    pub(crate) policy: Option<PathBuf>,
    /// The NAT.
    #[serde(default)]
    pub(crate) nat: Option<NatSection>,
}

/// A device that stands for a VLAN of a port, where the kernel has no kind `vlan`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VlanConfig {
    /// The device, which has the addresses and the routes.
    pub(crate) dev: String,
    /// The port that carries the frames.
    pub(crate) port: String,
    /// The number of the VLAN, from 1 to 4094.
    pub(crate) id: u16,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortConfig {
    /// The device.
    pub(crate) dev: String,
    /// The check of sources, which its VLANs have too.
    #[serde(default)]
    pub(crate) urpf: Check,
}

/// Where routes are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lookup {
    /// In the kernel's own table, for each packet
    #[default]
    Kernel,
}

/// The check of sources (RFC 3704).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Check {
    /// None
    #[default]
    Off,
    /// A route to the source is there
    Loose,
    /// The route to the source leads back by the device that the packet came from
    Strict,
}

impl From<Check> for Urpf {
    fn from(check: Check) -> Self {
        match check {
            Check::Off => Self::Off,
            Check::Loose => Self::Loose,
            Check::Strict => Self::Strict,
        }
    }
}

impl Config {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.display();
        let unreadable = |error| Failure::new(Kind::Failed, format!("cannot read {name}: {error}"));
        if fs::metadata(file).map_err(unreadable)?.len() > MAX_FILE_BYTES {
            return Err(Failure::usage(format!("{name} has more than {MAX_FILE_BYTES} bytes")));
        }
        parse(&fs::read_to_string(file).map_err(unreadable)?, &name.to_string())
    }
}

/// The file of this text; what is wrong has its line.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, Failure> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
        Failure::usage(format!("{name}{line}: {}", error.message().replace('\n', " ")))
    })
}

/// The protocol of a word.
pub(crate) fn protocol(word: &str) -> Result<u8, String> {
    match word {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmpv6" => Ok(58),
        number => number.parse().map_err(|_| "expected tcp, udp, icmp, icmpv6 or a number up to 255".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_ports_and_what_is_wrong_has_a_sentence() {
        let config = parse::<Config>("[[port]]\ndev = \"eth1\"\nurpf = \"strict\"\n[[port]]\ndev = \"eth2\"\n", "r");
        let config = config.unwrap();
        assert_eq!((config.ports[0].urpf, config.ports[1].urpf), (Check::Strict, Check::Off));
        assert_eq!(config.lookup, Lookup::Kernel);
        let wrong = parse::<Config>("[[port]]\ndev = \"eth1\"\nrpf = 1\n", "router.toml").unwrap_err();
        assert!(wrong.message.starts_with("router.toml, line 3: unknown field `rpf`"), "{}", wrong.message);
    }
}
