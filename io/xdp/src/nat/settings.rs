//! The settings of the loaded program: `struct nat_settings` of packet/bpf/nat.h.

use std::{fs, net::Ipv4Addr, path::Path};

use libbpf_rs::{MapCore as _, MapFlags};
use sallyport_packet_model::nat::{Filtering, NatConfig};

use crate::{XdpError, pins};

/// The most networks inside: `NAT_MAX_INSIDE`.
pub const MAX_INSIDE: usize = 16;
/// The bytes of the settings.
pub(crate) const SETTINGS_BYTES: usize = 232;
/// Where they have the mark.
const MARK: std::ops::Range<usize> = 224..230;
/// The only key.
pub(crate) const KEY: [u8; 4] = [0; 4];

/// What translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatEngine {
    /// The program, with tables of its own.
    Xdp,
    /// The kernel's connection tracking; the program translates flows that it knows.
    Conntrack,
}

impl NatEngine {
    /// Its word in the file of the router.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Conntrack => "conntrack",
        }
    }
}

/// The NAT of a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatSetup {
    /// What translates.
    pub engine: NatEngine,
    /// What is translated.
    pub config: NatConfig,
    /// Whether connection tracking took odd segments before: `down` leaves it as it was.
    pub was_liberal: bool,
    /// The source of the link by which the rules of the kernel know what XDP has translated.
    pub mark: [u8; 6],
}

/// The settings, as the program reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings([u8; SETTINGS_BYTES]);

impl Settings {
    /// The settings of this NAT; of none, zeros.
    pub(crate) fn of(nat: Option<&NatSetup>) -> Self {
        let mut bytes = Vec::with_capacity(SETTINGS_BYTES);
        if let Some(NatSetup { engine, config, was_liberal, .. }) = nat {
            let addresses = || externals(config).map(Ipv4Addr::to_bits);
            let words = [
                match engine {
                    NatEngine::Xdp => 1,
                    NatEngine::Conntrack => 2,
                },
                u32::from(config.filtering == Filtering::EndpointIndependent),
                config.pool.len() as u32,
                config.inside.len().min(MAX_INSIDE) as u32,
                u32::from(*config.ports.start()),
                u32::from(*config.ports.end()),
                config.seed,
                config.max_sessions as u32,
                config.max_sessions_per_user as u32,
                // Without an address, no number lies between the two.
                addresses().min().unwrap_or(1),
                addresses().max().unwrap_or(0),
                u32::from(*was_liberal),
            ];
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            let times = &config.timeouts;
            let times = [
                times.tcp_transitory,
                times.tcp_established,
                times.udp,
                times.icmp,
                times.half_open,
                times.tcp_closing,
            ];
            bytes.extend(times.iter().flat_map(|time| (time.as_nanos() as u64).to_ne_bytes()));
            for net in config.inside.iter().take(MAX_INSIDE) {
                bytes.extend(net.network().octets());
                bytes.extend(net.netmask().octets());
            }
        }
        bytes.resize(SETTINGS_BYTES, 0);
        let mut settings = [0; SETTINGS_BYTES];
        settings.copy_from_slice(&bytes);
        settings[MARK].copy_from_slice(&nat.map_or([0; 6], |nat| nat.mark));
        Self(settings)
    }

    /// The settings of the router that stands; without one, those of no NAT.
    pub(crate) fn standing(folder: &Path) -> Self {
        let read = || pins::map(folder, "nat_settings").ok()?.lookup(&KEY, MapFlags::ANY).ok()?;
        Self(read().and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; SETTINGS_BYTES]))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn word(&self, number: usize) -> u32 {
        self.0.get(number * 4..number * 4 + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    /// What translates, if anything does.
    pub(crate) fn engine(&self) -> Option<NatEngine> {
        match self.word(0) {
            1 => Some(NatEngine::Xdp),
            2 => Some(NatEngine::Conntrack),
            _ => None,
        }
    }

    /// The addresses of the pool.
    pub(crate) fn pool(&self) -> u32 {
        self.word(2)
    }

    /// The first and the last port of new mappings.
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.word(4) as u16, self.word(5) as u16)
    }

    /// The seed of the choice of ports.
    pub(crate) fn seed(&self) -> u32 {
        self.word(6)
    }

    /// The source of the link by which the rules of the kernel know what XDP has translated.
    pub(crate) fn mark(&self) -> [u8; 6] {
        self.0[MARK].try_into().unwrap_or_default()
    }

    /// Whether connection tracking took odd segments before this NAT.
    pub(crate) fn was_liberal(&self) -> bool {
        self.word(11) != 0
    }

    pub(crate) fn max_sessions(&self) -> u32 {
        self.word(7)
    }
}

/// The addresses outside: those of the pool, and those of forwarded ports.
pub(crate) fn externals(config: &NatConfig) -> impl Iterator<Item = Ipv4Addr> {
    config.pool.iter().copied().chain(config.forwards.iter().map(|forward| *forward.external.ip()))
}

/// Whether this kernel looks up connections for XDP: its own description of types names the function.
pub(crate) fn require_conntrack() -> Result<(), XdpError> {
    require_word(&["/sys/kernel/btf/nf_conntrack", "/sys/kernel/btf/vmlinux"].map(Path::new))
}

fn require_word(files: &[&Path]) -> Result<(), XdpError> {
    let word = b"\0bpf_xdp_ct_lookup\0";
    let has =
        |file: &&Path| fs::read(file).is_ok_and(|btf: Vec<u8>| btf.windows(word.len()).any(|window| window == word));
    if files.iter().any(has) { Ok(()) } else { Err(XdpError::NoConntrack) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_whose_types_have_no_lookup_of_connections_has_a_sentence() {
        let folder = std::env::temp_dir().join(format!("sallyport-btf-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (with, without) = (folder.join("with"), folder.join("without"));
        fs::write(&with, b"\x9f\xeb\x01\0bpf_skb_ct_lookup\0bpf_xdp_ct_lookup\0").unwrap();
        fs::write(&without, b"\x9f\xeb\x01\0bpf_skb_ct_lookup\0bpf_xdp_ct_lookup_other\0").unwrap();
        assert!(require_word(&[Path::new("/nonexistent"), &with]).is_ok());
        for files in [&[without.as_path()][..], &[Path::new("/nonexistent")], &[]] {
            let said = require_word(files).unwrap_err().to_string();
            assert!(said.ends_with("use engine = \"xdp\"") && said.contains("Linux 6.0"), "{said}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let config = NatConfig {
            inside: vec!["10.1.2.3/8".parse().unwrap()],
            pool: vec!["203.0.113.9".parse().unwrap(), "203.0.113.2".parse().unwrap()],
            ports: 2_000..=2_999,
            seed: 77,
            ..NatConfig::default()
        };
        let settings =
            Settings::of(Some(&NatSetup { engine: NatEngine::Conntrack, config, was_liberal: true, mark: [7; 6] }));
        assert_eq!(settings.engine(), Some(NatEngine::Conntrack));
        assert!(settings.was_liberal() && settings.mark() == [7; 6]);
        assert_eq!((settings.ports(), settings.seed()), ((2_000, 2_999), 77));
        assert_eq!((settings.word(9), settings.word(10)), (0xcb00_7102, 0xcb00_7109));
        assert_eq!(settings.bytes()[96..104], [10, 0, 0, 0, 255, 0, 0, 0]);
        assert_eq!(Settings::of(None).engine(), None);
    }
}
