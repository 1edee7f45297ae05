//! Parts of a ClientHello that rustls does not expose.

/// The type of records of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// The type of a ClientHello (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
/// The extension with the sessions to resume, `pre_shared_key` (RFC 8446 section 4.2).
const PRE_SHARED_KEY: u16 = 41;
/// The extension with the client's TLS versions (RFC 8446 section 4.2.1), and the value of TLS 1.3.
const SUPPORTED_VERSIONS: u16 = 43;
const TLS13: [u8; 2] = [3, 4];

/// Whether a client wants to resume a session of TLS 1.3. The first bytes of the client hold its whole ClientHello.
///
/// Whether the session is known is not checked. A ClientHello in several records gives `false`; usual clients send one.
#[must_use]
pub fn offers_session(first_bytes: &[u8]) -> bool {
    // It must be the last one (RFC 8446, section 4.2.11), so the search passes all others.
    find(first_bytes, PRE_SHARED_KEY).is_some()
}

/// Whether a client speaks TLS 1.3, as [`offers_session`].
#[must_use]
pub fn offers_tls13(first_bytes: &[u8]) -> bool {
    let versions = find(first_bytes, SUPPORTED_VERSIONS).and_then(vector::<1>);
    versions.is_some_and(|(versions, _)| versions.chunks_exact(TLS13.len()).any(|version| version == TLS13))
}

/// The content of an extension.
fn find(first_bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut extensions = extensions(first_bytes)?;
    loop {
        let (kind, rest) = extensions.split_first_chunk()?;
        if u16::from_be_bytes(*kind) == wanted {
            return vector::<2>(rest).map(|(data, _)| data).or(Some(&[]));
        }
        extensions = skip::<2>(rest)?;
    }
}

/// The extensions of a ClientHello (RFC 8446 section 4.1.2).
fn extensions(record: &[u8]) -> Option<&[u8]> {
    let [HANDSHAKE, _, _, rest @ ..] = record else { return None };
    let [CLIENT_HELLO, rest @ ..] = vector::<2>(rest)?.0 else { return None };
    let (hello, _) = vector::<3>(rest)?;
    // The version and the random.
    let rest = hello.get(2 + 32..)?;
    let session_id = skip::<1>(rest)?;
    let cipher_suites = skip::<2>(session_id)?;
    let compression_methods = skip::<1>(cipher_suites)?;
    Some(vector::<2>(compression_methods)?.0)
}

/// A vector with a length prefix of `LENGTH_BYTES` (RFC 8446 section 3.4), and the rest.
fn vector<const LENGTH_BYTES: usize>(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

/// The bytes after such a vector.
fn skip<const LENGTH_BYTES: usize>(bytes: &[u8]) -> Option<&[u8]> {
    vector::<LENGTH_BYTES>(bytes).map(|(_, behind)| behind)
}

#[cfg(test)]
mod tests {
    use std::{io::Cursor, sync::Arc};

    use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, pki_types::PrivateKeyDer};

    use super::super::provider::provider;
    use super::*;

    /// The first bytes of the first and of the second connection of a client that resumes sessions.
    fn first_and_second() -> [Vec<u8>; 2] {
        let made = rcgen::generate_simple_self_signed(vec!["app.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (server, client) = (Arc::new(server), Arc::new(client));
        [(), ()].map(|()| {
            let mut client = ClientConnection::new(client.clone(), "app.test".try_into().unwrap()).unwrap();
            let mut server = ServerConnection::new(server.clone()).unwrap();
            let mut first = Vec::new();
            while client.wants_write() || server.wants_write() {
                let mut sent = Vec::new();
                client.write_tls(&mut sent).unwrap();
                if first.is_empty() {
                    first.clone_from(&sent);
                }
                server.read_tls(&mut Cursor::new(sent)).unwrap();
                server.process_new_packets().unwrap();
                let mut sent = Vec::new();
                server.write_tls(&mut sent).unwrap();
                client.read_tls(&mut Cursor::new(sent)).unwrap();
                client.process_new_packets().unwrap();
            }
            assert!(!client.is_handshaking());
            first
        })
    }

    #[test]
    fn a_returning_client_offers_a_session_and_a_new_client_none() {
        let [new, again] = first_and_second();
        assert_eq!((offers_session(&new), offers_session(&again)), (false, true));
        let with_more = [&again[..], &[23, 3, 3, 0, 1, 0]].concat();
        assert!(offers_session(&with_more), "early data may follow");
        for (whole, length) in [&new, &again].into_iter().flat_map(|whole| (0..whole.len()).map(move |n| (whole, n))) {
            assert!(!offers_session(&whole[..length]), "{length} bytes of one that is not whole");
        }
    }

    #[test]
    fn a_client_says_whether_it_speaks_tls_1_3() {
        use rustls::version::{TLS12, TLS13};
        for (versions, offers) in [(&[&TLS12][..], false), (&[&TLS13], true), (&[&TLS12, &TLS13], true)] {
            let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
            let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            let mut client = ClientConnection::new(Arc::new(config), "app.test".try_into().unwrap()).unwrap();
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            assert_eq!(offers_tls13(&sent), offers, "{versions:?}");
            for end in 0..sent.len() {
                assert!(!offers_tls13(&sent[..end]), "{end} bytes of one that is not whole");
            }
        }
    }

    #[test]
    fn whatever_comes_nothing_breaks() {
        let [_, again] = first_and_second();
        for place in 0..again.len() {
            for byte in [0, 1, 22, 41, 127, 255] {
                let mut other = again.clone();
                other[place] = byte;
                let _ = (offers_session(&other), offers_tls13(&other));
            }
        }
        for other in [&b""[..], b"SSH-2.0-x\r\n", &[22], &[22, 3, 1, 0, 0], &[22, 3, 1, 0, 4, 1, 0, 0, 0]] {
            assert!(!offers_session(other));
        }
    }
}
