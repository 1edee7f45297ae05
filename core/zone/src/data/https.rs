//! HTTPS records of names with the addresses of edges (RFC 9460).

use crate::record::{RecordSet, RecordType};

/// The port of a URL with the scheme `https` and without a port.
const HTTPS_PORT: u16 = 443;
/// Keys of parameters (RFC 9460 section 14.3.2).
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;

/// The ports at which every edge of a group serves HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpPorts {
    /// The TCP port, for HTTP/2 and HTTP/1.1.
    pub tcp: u16,
    /// The UDP port, for HTTP/3.
    pub udp: u16,
}

impl HttpPorts {
    /// The HTTPS records. One record has one port for all its protocols, so that two ports need two records.
    pub(super) fn records(self, ttl: u32) -> Option<RecordSet> {
        let data = match self.tcp == self.udp {
            true => vec![service(1, &["h3", "h2"], &[], self.udp)],
            false => vec![service(1, &["h3"], &[(NO_DEFAULT_ALPN, &[])], self.udp), service(2, &["h2"], &[], self.tcp)],
        };
        RecordSet::new(RecordType::HTTPS, ttl, data, None).ok()
    }
}

/// The data of a record whose target is the name itself.
fn service(priority: u16, protocols: &[&str], more: &[(u16, &[u8])], port: u16) -> Vec<u8> {
    let mut data = [&priority.to_be_bytes()[..], &[0]].concat();
    let mut parameter = |key: u16, value: &[u8]| {
        data.extend(key.to_be_bytes());
        data.extend((value.len() as u16).to_be_bytes());
        data.extend(value);
    };
    let ids: Vec<u8> = protocols.iter().flat_map(|id| std::iter::once(id.len() as u8).chain(id.bytes())).collect();
    parameter(ALPN, &ids);
    more.iter().for_each(|(key, value)| parameter(*key, value));
    //= RFC 9460 section 7.2
    //# If this key is not present, clients SHALL use the authority endpoint's port number.
    if port != HTTPS_PORT {
        parameter(PORT, &port.to_be_bytes());
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        name::Name,
        record::{RecordData, parse_record},
    };

    #[test]
    fn protocols_with_different_ports_have_records_of_their_own() {
        let name = Name::from_text("www.example.com").unwrap();
        let parsed = |text: &&str| match parse_record(&name, 20, "HTTPS", text, &name).unwrap().data {
            RecordData::Plain(_, data) => data,
            other => panic!("{other:?}"),
        };
        for ((tcp, udp), expected) in [
            ((443, 443), &["1 . alpn=h3,h2"][..]),
            ((8443, 8443), &["1 . alpn=h3,h2 port=8443"]),
            ((443, 8443), &["1 . alpn=h3 no-default-alpn port=8443", "2 . alpn=h2"]),
            ((8443, 443), &["1 . alpn=h3 no-default-alpn", "2 . alpn=h2 port=8443"]),
        ] {
            let set = HttpPorts { tcp, udp }.records(20).unwrap();
            assert_eq!(set.ttl(), 20);
            assert_eq!(set.data().collect::<Vec<_>>(), expected.iter().map(parsed).collect::<Vec<_>>(), "{tcp} {udp}");
        }
    }
}
