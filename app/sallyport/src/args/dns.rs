//! Options of the name server.

use std::{
    io::Read as _,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use ipnet::IpNet;
use sallyport_zone::{Name, TsigHash, TsigKeys, limit::RateConfig};

use super::listen::{ListenAddress, listen_address};
use crate::failure::Failure;

/// The longest file of keys that is read, in bytes.
const MAX_KEYS_BYTES: u64 = 65_536;
/// The port of the name service.
pub(crate) const DNS_PORT: u16 = 53;

/// Options of the name server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Name server")]
pub(crate) struct DnsArgs {
    /// Answer DNS, over UDP and TCP, for the domain and for zones of organisations: ADDR:PORT or :PORT [default: port 53
    /// of the address of --listen]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_DNS", num_args = 0..=1)]
    #[arg(default_missing_value = ":53", value_parser = listen_address)]
    pub(crate) listen_dns: Option<ListenAddress>,
    /// The keys (TSIG) of secondaries, which may transfer zones without addresses of edges: a file with lines NAME
    /// ALGORITHM SECRET, such as `key1 hmac-sha256 bWFrZSBpdCBsb25nIGVub3VnaA==`
    #[arg(long, value_name = "FILE", env = "SALLYPORT_DNS_TSIG_FILE", requires = "listen_dns")]
    pub(crate) dns_tsig_file: Option<PathBuf>,
    /// The secondaries that are told of changes: ADDR or ADDR:PORT
    #[arg(long, value_name = "ADDR", env = "SALLYPORT_DNS_SECONDARIES", value_delimiter = ',')]
    #[arg(requires = "dns_tsig_file", value_parser = address)]
    pub(crate) dns_secondaries: Vec<SocketAddr>,
    /// The name of a zone that lists the zones for secondaries (RFC 9432), such as catalog.invalid
    #[arg(long, value_name = "NAME", env = "SALLYPORT_DNS_CATALOG", requires = "dns_tsig_file", value_parser = name)]
    pub(crate) dns_catalog: Option<Name>,
    /// The most answers of one kind a second to one network (/24 or /56) over UDP, beyond which answers are cut short or
    /// dropped; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "listen_dns")]
    pub(crate) dns_rate_limit: u32,
    /// The networks without that limit, such as those of own resolvers
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', requires = "listen_dns")]
    pub(crate) dns_rate_exempt: Vec<IpNet>,
}

impl DnsArgs {
    /// The rates of answers over UDP.
    pub(crate) fn rates(&self) -> RateConfig {
        let usual = RateConfig::default();
        let new_networks_per_second = if self.dns_rate_limit == 0 { 0 } else { usual.new_networks_per_second };
        RateConfig {
            answers_per_second: self.dns_rate_limit,
            new_networks_per_second,
            exempt: self.dns_rate_exempt.clone(),
            ..usual
        }
    }

    /// The keys of secondaries.
    ///
    /// # Errors
    /// The file cannot be read, is open to others, or has a line that is no key.
    pub(crate) fn keys(&self) -> anyhow::Result<(TsigKeys, Vec<Name>)> {
        use std::os::unix::fs::PermissionsExt as _;
        let (mut keys, mut names) = (TsigKeys::default(), Vec::new());
        let Some(path) = &self.dns_tsig_file else { return Ok((keys, names)) };
        let cannot = || format!("cannot read {}", path.display());
        let file = std::fs::File::open(path).with_context(cannot)?;
        let mode = file.metadata().with_context(cannot)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let failure = Failure::usage(format!("{} can be read by others (mode {mode:04o})", path.display()));
            return Err(failure.next(format!("run chmod 600 {}", path.display())).into());
        }
        let mut text = String::new();
        file.take(MAX_KEYS_BYTES).read_to_string(&mut text).with_context(cannot)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in (1..).zip(lines) {
            let wrong = |reason: String| {
                Failure::usage(format!("{}: key {number}: {reason}", path.display()))
                    .next("a line has NAME ALGORITHM SECRET: hmac-sha256 or hmac-sha512, and base64")
            };
            let mut words = line.split_whitespace();
            let (Some(name), Some(algorithm), Some(secret), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return Err(wrong("it has not three words".to_owned()).into());
            };
            let hash = match algorithm.trim_end_matches('.') {
                "hmac-sha256" => TsigHash::Sha256,
                "hmac-sha512" => TsigHash::Sha512,
                other => return Err(wrong(format!("{other:?} is no algorithm")).into()),
            };
            let name = Name::from_text(name).map_err(|error| wrong(error.to_string()))?;
            let secret = STANDARD.decode(secret).map_err(|_| wrong("its secret is not base64".to_owned()))?;
            keys.insert(name.clone(), hash, &secret).map_err(|error| wrong(error.to_string()))?;
            names.push(name);
        }
        Ok((keys, names))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    let address = address.or_else(|| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT)));
    address.ok_or_else(|| "expected the address of a server, such as 192.0.2.53 or [2001:db8::53]:5353".to_owned())
}

fn name(text: &str) -> Result<Name, String> {
    Name::from_text(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str, mode: u32) -> anyhow::Result<usize> {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("keys");
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        Ok(DnsArgs { dns_tsig_file: Some(path), ..DnsArgs::default() }.keys()?.1.len())
    }

    #[test]
    fn keys_of_secondaries_are_read_line_by_line() {
        let secret = STANDARD.encode([7; 32]);
        assert_eq!(
            keys(&format!("# ours\nkey1 hmac-sha256 {secret}\n\nkey2. hmac-sha512. {secret}\n"), 0o600).unwrap(),
            2
        );
        for (text, says) in [
            ("key1 hmac-md5 AAAA", "is no algorithm"),
            ("key1 hmac-sha256", "three words"),
            ("key1 hmac-sha256 AAAA", "key 1"),
            ("key1 hmac-sha256 ?", "not base64"),
        ] {
            let error = keys(text, 0o600).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(keys("", 0o644).unwrap_err().to_string().contains("read by others"));
    }
}
