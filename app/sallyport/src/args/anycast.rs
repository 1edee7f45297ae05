//! Options for prefixes that edges announce by BGP.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use clap::Args;
use ipnet::IpNet;
use sallyport_anycast::bird::{RpkiServer, router_id_of};
use sallyport_model::EdgeName;

/// The longest name of an interface (Linux: IFNAMSIZ without its end).
const MAX_INTERFACE_BYTES: usize = 15;

/// The prefixes that edges may announce.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AnycastAllowArgs {
    /// Allow anycast prefixes in this network: edges announce no others by BGP [default: none]
    #[arg(long, value_name = "PREFIX", env = "SALLYPORT_ANYCAST_ALLOW", value_delimiter = ',', value_parser = prefix)]
    pub(crate) anycast_allow: Vec<IpNet>,
}

/// Options of an edge that announces prefixes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Anycast")]
pub(crate) struct AnycastArgs {
    /// The control socket of BIRD, by which the edge announces prefixes, such as /run/bird/bird.ctl [default: none are
    /// announced]
    #[arg(long, value_name = "SOCKET", env = "SALLYPORT_BIRD")]
    pub(crate) bird: Option<PathBuf>,
    /// The file that the edge writes, and that bird.conf includes
    #[arg(long, value_name = "FILE", env = "SALLYPORT_BIRD_CONFIG", default_value = "/etc/bird/sallyport.conf")]
    pub(crate) bird_config: PathBuf,
    #[command(flatten)]
    pub(crate) allow: AnycastAllowArgs,
    /// The interface that gets the service addresses
    #[arg(long, value_name = "NAME", env = "SALLYPORT_ANYCAST_INTERFACE", default_value = "lo")]
    #[arg(value_parser = interface)]
    pub(crate) anycast_interface: String,
    /// A server that says which autonomous system may announce a prefix (RPKI): HOST:PORT
    #[arg(long, value_name = "HOST:PORT", env = "SALLYPORT_RPKI_SERVER", requires = "bird", value_delimiter = ',')]
    #[arg(value_parser = rpki_server)]
    pub(crate) rpki_server: Vec<RpkiServer>,
    /// The router id of the edge: an IPv4 address of its own [default: its first public one]
    #[arg(long, value_name = "ADDR", env = "SALLYPORT_ANYCAST_ROUTER_ID", requires = "bird")]
    pub(crate) anycast_router_id: Option<Ipv4Addr>,
}

impl AnycastArgs {
    /// The router id of an edge with these addresses of its own. One without an IPv4 address has a number that is made
    /// of its name.
    pub(crate) fn router_id(&self, own: &[IpAddr], edge: &EdgeName) -> Ipv4Addr {
        let of_v4 = own.iter().find_map(|address| match address.to_canonical() {
            IpAddr::V4(address) if !address.is_unspecified() && !address.is_loopback() => Some(address),
            _ => None,
        });
        self.anycast_router_id.or(of_v4).unwrap_or_else(|| router_id_of(edge))
    }
}

fn prefix(text: &str) -> Result<IpNet, String> {
    let net: IpNet = text.parse().map_err(|_| "expected a prefix such as 198.51.100.0/24".to_owned())?;
    if net.trunc() != net {
        return Err(format!("it has bits after its length: use {}", net.trunc()));
    }
    if net.prefix_len() == 0 {
        return Err("every prefix would be allowed: name those that are yours".to_owned());
    }
    Ok(net)
}

/// Reads the name of an interface.
pub(crate) fn interface(text: &str) -> Result<String, String> {
    let is_name = (1..=MAX_INTERFACE_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'"' | b'\\'));
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "expected the name of an interface, such as lo or anycast0".to_owned())
}

fn rpki_server(text: &str) -> Result<RpkiServer, String> {
    text.parse().map_err(|error: sallyport_anycast::bird::RpkiServerError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_could_do_harm_are_refused() {
        assert_eq!(prefix("198.51.100.0/24").unwrap().to_string(), "198.51.100.0/24");
        for bad in ["", "0.0.0.0/0", "::/0", "198.51.100.1/24", "198.51.100.0", "x"] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
        assert!(interface("anycast0").is_ok());
        for bad in ["", "a/b", "a b", "0123456789abcdef", "a\"b"] {
            assert!(interface(bad).is_err(), "{bad}");
        }
        for good in ["rpki.example.com:3323", "192.0.2.1:323", "[2001:db8::1]:323"] {
            assert!(rpki_server(good).is_ok(), "{good}");
        }
        for bad in ["", "host", "host:0", "host:70000", "a;b:1", "a\nb:1", ":1"] {
            assert!(rpki_server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_router_id_is_the_first_ipv4_address() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            anycast: AnycastArgs,
        }
        let of = |line: &[&str], own: &[&str]| {
            let args = <Line as clap::Parser>::try_parse_from([&["edge"], line].concat()).unwrap().anycast;
            let own: Vec<IpAddr> = own.iter().map(|text| text.parse().unwrap()).collect();
            args.router_id(&own, &"eu-1".parse().unwrap())
        };
        assert_eq!(of(&["--bird", "b"], &["::1", "192.0.2.7"]).to_string(), "192.0.2.7");
        let given = ["--bird", "b", "--anycast-router-id", "192.0.2.9"];
        assert_eq!(of(&given, &["192.0.2.7"]).to_string(), "192.0.2.9");
        assert_ne!(of(&["--bird", "b"], &["127.0.0.1", "2001:db8::1"]).to_string(), "127.0.0.1");
        for bad in [&["--anycast-router-id", "192.0.2.9"][..], &["--rpki-server", "a:1"], &["--bird"]] {
            assert!(<Line as clap::Parser>::try_parse_from([&["edge"], bad].concat()).is_err(), "{bad:?}");
        }
    }
}
