//! The files of a router: its own, that of its policy, and the section of its NAT.

mod nat;
mod policy;
mod router;
pub(crate) mod shared_ports;

use std::{fs::File, io::Read as _, path::Path};

use sallyport_cli::failure::{Failure, Kind};
use serde::de::DeserializeOwned;

pub(crate) use nat::NatSection;
pub(crate) use policy::{Names, PolicyFile, StateWord};
pub(crate) use router::{Check, Config, Lookup, PortConfig};

/// Reads a file of at most so many bytes.
pub(crate) fn read<T: DeserializeOwned>(file: &Path, most: u64) -> Result<T, Failure> {
    let name = file.display();
    let unreadable = |error| Failure::new(Kind::Failed, format!("cannot read {name}: {error}"));
    let mut text = String::new();
    let read = File::open(file).map_err(unreadable)?.take(most + 1).read_to_string(&mut text).map_err(unreadable)?;
    if read as u64 > most {
        return Err(Failure::usage(format!("{name} has more than {most} bytes")));
    }
    parse(&text, &name.to_string())
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
    fn a_device_without_an_end_is_refused() {
        let failure = read::<Config>(Path::new("/dev/zero"), 100).unwrap_err();
        assert_eq!(failure.message, "/dev/zero has more than 100 bytes");
    }
}
