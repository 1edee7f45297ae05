//! A server without sockets.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_proto::op::Message;
use sallyport_zone::{
    Name, Now, Outcome, Peer, Serving, Settings, State, StateConfig, Transport, Verdict, View, Zone, Zones, answer,
    dnssec::{Algorithm, KeyRole, KeyTimes, SigningKey, ZoneKeys},
};

/// The time at which tests begin, in seconds since 1970.
pub(crate) const BEGIN: u64 = 1_800_000_000;

/// A server with everything that its answers depend on.
pub(crate) struct Lab {
    pub(crate) zones: Zones,
    pub(crate) view: View,
    pub(crate) settings: Settings,
    pub(crate) state: State,
    pub(crate) peer: Peer,
    pub(crate) now: Now,
}

/// A query that is being written.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) name: &'static str,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    /// Flags of EDNS, and its version above them.
    pub(crate) edns: Option<u32>,
    pub(crate) udp_bytes: u16,
    pub(crate) options: Vec<u8>,
}

/// DO.
pub(crate) const DNSSEC_OK: u32 = 0x8000;
/// CO.
pub(crate) const COMPACT_OK: u32 = 0x4000;

impl Ask {
    pub(crate) fn new(name: &'static str, rtype: u16) -> Self {
        Self { name, rtype, class: 1, edns: Some(0), udp_bytes: 1_232, options: Vec::new() }
    }

    pub(crate) fn edns(mut self, flags: u32) -> Self {
        self.edns = Some(flags);
        self
    }

    pub(crate) fn option(mut self, code: u16, value: &[u8]) -> Self {
        self.options.extend(code.to_be_bytes());
        self.options.extend((value.len() as u16).to_be_bytes());
        self.options.extend(value);
        self
    }

    /// The bytes. The name keeps its case.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(self.edns.is_some())];
        for label in self.name.split('.').filter(|label| !label.is_empty()) {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend(self.rtype.to_be_bytes());
        bytes.extend(self.class.to_be_bytes());
        if let Some(flags) = self.edns {
            bytes.extend([0, 0, 41]);
            bytes.extend(self.udp_bytes.to_be_bytes());
            bytes.extend(flags.to_be_bytes());
            bytes.extend((self.options.len() as u16).to_be_bytes());
            bytes.extend(&self.options);
        }
        bytes
    }
}

impl Lab {
    pub(crate) fn new(zones: impl IntoIterator<Item = Zone>) -> Self {
        let mut config = StateConfig::default();
        config.rate.answers_per_second = 0;
        Self {
            zones: Zones::new(zones.into_iter().map(Arc::new)).unwrap(),
            view: View::default(),
            settings: Settings::default(),
            state: State::new(config, [5; 16]),
            peer: Peer { address: [192, 0, 2, 200].into(), transport: Transport::Udp },
            now: Now { unix_seconds: BEGIN, monotonic: Instant::now() },
        }
    }

    pub(crate) fn advance(&mut self, seconds: u64) {
        self.now.unix_seconds += seconds;
        self.now.monotonic += Duration::from_secs(seconds);
    }

    pub(crate) fn send(&mut self, query: &[u8]) -> (Outcome, Vec<u8>) {
        let mut out = Vec::new();
        let serving = Serving { zones: &self.zones, view: &self.view, settings: &self.settings };
        let outcome = answer(query, &self.peer, &serving, &mut self.state, self.now, &mut out);
        assert_eq!(matches!(outcome.verdict, Verdict::Send), !out.is_empty());
        (outcome, out)
    }

    /// Sends the query, and reads the answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Message {
        let query = ask.bytes();
        let (outcome, out) = self.send(&query);
        assert_eq!(out[12..12 + ask.name.len() + 5], query[12..12 + ask.name.len() + 5], "the question as it came");
        let message = Message::from_vec(&out).unwrap();
        assert_eq!(u16::from(message.metadata.response_code), outcome.rcode.0);
        message
    }

    /// Asks without DNSSEC, and describes the answer: code, flags and records of the answer and the authority.
    pub(crate) fn text(&mut self, name: &'static str, rtype: u16) -> String {
        describe(&self.ask(&Ask::new(name, rtype)))
    }
}

/// The answer in one text.
pub(crate) fn describe(message: &Message) -> String {
    let meta = &message.metadata;
    let flags = [(meta.authoritative, " aa"), (meta.truncation, " tc")];
    let mut text = format!("{:?}", meta.response_code);
    flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, flag)| text += flag);
    for (section, records) in [("", &message.answers), ("auth ", &message.authorities)] {
        for record in records {
            text += &format!("; {section}{record}");
        }
    }
    text
}

/// A zone from a master file, without its SOA and NS records.
pub(crate) fn zone(apex: &str, text: &str) -> Zone {
    zone_with(apex, text, None)
}

/// A signed zone.
pub(crate) fn signed_zone(apex: &str, text: &str) -> Zone {
    let name: Name = apex.parse().unwrap();
    let keys = ZoneKeys::new(name, vec![key(1, KeyRole::Combined, KeyTimes::from(0))], 3_600, BEGIN).unwrap();
    zone_with(apex, text, Some(Arc::new(keys)))
}

pub(crate) fn zone_with(apex: &str, text: &str, keys: Option<Arc<ZoneKeys>>) -> Zone {
    let text = format!("$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n{text}\n");
    Zone::from_master_file(apex.parse().unwrap(), &text, keys).unwrap()
}

pub(crate) fn key(secret: u8, role: KeyRole, times: KeyTimes) -> SigningKey {
    SigningKey::from_secret(Algorithm::EcdsaP256Sha256, &[secret; 32], role, times).unwrap()
}
