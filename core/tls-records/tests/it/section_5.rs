//! Each rule of RFC 8446 section 5, against OpenSSL.
//!
//! A rule about forbidden records is tested both ways. OpenSSL's client gets such a record from us, and its alert
//! confirms our reading of the rule. The record layer gets a record sealed with OpenSSL's own secret, and OpenSSL must
//! understand the alert in return.

use std::io::{Read as _, Write as _};

use rustls::AlertDescription;
use sallyport_tls_records::{ContentType, HandshakeError, MAX_PLAIN_BYTES};

use crate::{
    openssl::{self, Openssl},
    side::{Failure, Side, headers, seal},
};

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const KEY_UPDATE: u8 = 24;

/// Our record layer refuses the last of these records of OpenSSL with this alert, and OpenSSL understands the alert.
fn we_refuse(openssl: &Openssl, side: &mut Side, records: &[Vec<u8>], alert: AlertDescription) {
    let (last, first) = records.split_last().unwrap();
    for record in first {
        side.open(record).unwrap();
    }
    let error = side.open(last).unwrap_err();
    assert_eq!((error.alert(), error.is_from_peer()), (alert, false), "{error}");
    openssl.wait_for(&format!("SSL alert number {}", u8::from(alert)));
}

/// We refuse records of OpenSSL that have these inner plaintexts, the last of them with this alert.
fn we_refuse_inner(inner: &[&[u8]], alert: AlertDescription) {
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    let records: Vec<Vec<u8>> = inner.iter().map(|inner| forger.record(inner)).collect();
    we_refuse(&openssl, &mut side, &records, alert);
}

/// OpenSSL refuses records of ours that have these inner plaintexts. Gives its alert.
fn openssl_refuses_inner(inner: &[&[u8]]) -> AlertDescription {
    let (_openssl, mut side, _) = openssl::client(&[]);
    for inner in inner {
        side.write_inner(inner);
    }
    let error = side.read_record().unwrap_err();
    assert!(error.is_from_peer(), "{error}");
    error.alert()
}

/// Both sides refuse the last of these records with this alert.
fn both_refuse(inner: &[&[u8]], alert: AlertDescription) {
    assert_eq!(openssl_refuses_inner(inner), alert, "OpenSSL");
    we_refuse_inner(inner, alert);
}

/// The alert with which our server refuses a connection that begins with these bytes.
fn alert_for_first_bytes(bytes: &[u8]) -> AlertDescription {
    let (mut near, far) = openssl::bare_pair();
    near.write_all(bytes).unwrap();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(openssl::serve(far, &[]), Err(Failure::Handshake(HandshakeError::Tls(_)))));
    alert_in(near)
}

/// The alert with which OpenSSL's server refuses a connection that begins with these bytes.
fn alert_of_openssl_for_first_bytes(bytes: &[u8]) -> AlertDescription {
    let (_openssl, mut near) = openssl::bare_server();
    near.write_all(bytes).unwrap();
    alert_in(near)
}

fn alert_in(mut from: std::net::TcpStream) -> AlertDescription {
    let mut came = [0; 7];
    from.read_exact(&mut came).unwrap();
    let [ALERT, 3, _, 0, 2, 2, description] = came else { panic!("no alert: {came:?}") };
    AlertDescription::from(description)
}

/// Section 5.1: "Handshake messages MAY be coalesced into a single TLSPlaintext record or fragmented across several
/// records".
#[test]
fn handshake_messages_come_in_fragments_of_any_size() {
    if !openssl::is_there() {
        return;
    }
    let (_openssl, mut side) = openssl::server(&["-max_send_frag", "512", "-num_tickets", "3", "-rev"]);
    let lengths: Vec<usize> = headers(&side.came).iter().filter(|(kind, ..)| *kind == DATA).map(|it| it.2).collect();
    assert!(lengths.len() > 1 && lengths.iter().all(|len| *len <= 512 + 256), "{lengths:?}");
    side.write(b"hello\n");
    assert_eq!(side.read(6), b"olleh\n");
    // After the handshake: a key update in pieces of one byte.
    let (_openssl, mut side, mut forger) = openssl::client(&[]);
    for byte in [KEY_UPDATE, 0, 0, 1, 0] {
        assert_eq!(side.open(&forger.record(&[byte, HANDSHAKE])).unwrap(), Some(Vec::new()));
    }
    assert_eq!(side.records.read_sequence(), 0, "the key has changed");
}

/// Section 5.1: "If a handshake message is split over two or more records, there MUST NOT be any other records between
/// them."
#[test]
fn nothing_comes_between_the_fragments_of_a_handshake_message() {
    if !openssl::is_there() {
        return;
    }
    let part: &[u8] = &[KEY_UPDATE, 0, 0, HANDSHAKE];
    both_refuse(&[part, &[b'x', DATA]], AlertDescription::UnexpectedMessage);
    we_refuse_inner(&[part, &[1, 0, ALERT]], AlertDescription::UnexpectedMessage);
    we_refuse_inner(&[part, &[DATA]], AlertDescription::UnexpectedMessage);
}

/// Section 5.1: "Handshake messages MUST NOT span key changes. Implementations MUST verify that all messages
/// immediately preceding a key change align with a record boundary; if not, then they MUST terminate the connection
/// with an "unexpected_message" alert."
#[test]
fn a_key_update_ends_its_record() {
    if !openssl::is_there() {
        return;
    }
    let two: &[u8] = &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0, HANDSHAKE];
    both_refuse(&[two], AlertDescription::UnexpectedMessage);
    we_refuse_inner(&[&[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, HANDSHAKE]], AlertDescription::UnexpectedMessage);
}

/// Section 5.1: "Implementations MUST NOT send zero-length fragments of Handshake types, even if those fragments
/// contain padding."
#[test]
fn a_fragment_of_a_handshake_message_is_not_empty() {
    if !openssl::is_there() {
        return;
    }
    both_refuse(&[&[HANDSHAKE]], AlertDescription::UnexpectedMessage);
    both_refuse(&[&[HANDSHAKE, 0, 0, 0, 0]], AlertDescription::UnexpectedMessage);
    // Not encrypted: OpenSSL ignores it.
    alert_for_first_bytes(&[HANDSHAKE, 3, 1, 0, 0]);
}

/// Section 5.1: "Alert messages MUST NOT be fragmented across records, and multiple alert messages MUST NOT be
/// coalesced into a single TLSPlaintext record."
#[test]
fn an_alert_is_one_record() {
    if !openssl::is_there() {
        return;
    }
    for inner in [&[1, ALERT][..], &[1, 90, 1, 90, ALERT]] {
        openssl_refuses_inner(&[inner]);
        // The RFC names no alert for this.
        we_refuse_inner(&[inner], AlertDescription::DecodeError);
    }
}

/// Section 5.1: "Zero-length fragments of Application Data MAY be sent".
#[test]
fn empty_records_of_data_are_taken() {
    if !openssl::is_there() {
        return;
    }
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    for inner in [&[DATA][..], &[DATA, 0, 0]] {
        assert_eq!(side.open(&forger.record(inner)).unwrap(), Some(Vec::new()));
        side.write_inner(inner);
    }
    assert_eq!(side.open(&forger.record(b"hello\x17")).unwrap(), Some(b"hello".to_vec()));
    side.write(b"written behind empty records");
    openssl.wait_for("written behind empty records");
    // The number of empty records in a row is limited.
    for _ in 0..32 {
        side.open(&forger.record(&[DATA])).unwrap();
    }
    we_refuse(&openssl, &mut side, &[forger.record(&[DATA])], AlertDescription::UnexpectedMessage);
}

/// Section 5.1: "Application Data records [...] are always protected". Section 5: "If a TLS implementation receives an
/// unexpected record type, it MUST terminate the connection with an "unexpected_message" alert."
#[test]
fn data_before_the_handshake_are_refused() {
    if !openssl::is_there() {
        return;
    }
    let first = [DATA, 3, 3, 0, 1, b'x'];
    assert_eq!(alert_for_first_bytes(&first), AlertDescription::UnexpectedMessage);
    assert_eq!(alert_of_openssl_for_first_bytes(&first), AlertDescription::UnexpectedMessage);
}

/// Section 5: "Implementations MUST NOT send record types not defined in this document unless negotiated by some
/// extension. If a TLS implementation receives an unexpected record type, it MUST terminate the connection with an
/// "unexpected_message" alert."
#[test]
fn unknown_content_types_are_refused() {
    if !openssl::is_there() {
        return;
    }
    for content_type in [1, 19, 24, 99, 255] {
        we_refuse_inner(&[&[b'x', content_type]], AlertDescription::UnexpectedMessage);
    }
    assert_eq!(openssl_refuses_inner(&[&[b'x', 99]]), AlertDescription::UnexpectedMessage);
}

/// Section 5.1: "The length MUST NOT exceed 2^14 bytes. An endpoint that receives a record that exceeds this length
/// MUST terminate the connection with a "record_overflow" alert." (Records of the handshake that are not encrypted.)
#[test]
fn a_plain_record_has_at_most_2_14_bytes() {
    if !openssl::is_there() {
        return;
    }
    let first_bytes = |len: u16| {
        let mut bytes = [&[HANDSHAKE, 3, 1][..], &len.to_be_bytes()].concat();
        bytes.resize(5 + usize::from(len), 1);
        bytes
    };
    // OpenSSL's limit is that of TLS 1.2, 2^14 + 2048.
    assert_eq!(alert_of_openssl_for_first_bytes(&first_bytes(0x4801)), AlertDescription::RecordOverflow);
    for len in [0x4001, 0x4801, 0xffff] {
        assert_eq!(alert_for_first_bytes(&first_bytes(len)), AlertDescription::RecordOverflow);
    }
}

/// Section 5.1: legacy_record_version "MUST be set to 0x0303 for all records generated by a TLS 1.3 implementation
/// other than an initial ClientHello [...], where it MAY also be 0x0301 for compatibility purposes."
#[test]
fn records_that_we_send_have_the_version_0x0303() {
    if !openssl::is_there() {
        return;
    }
    let (openssl, mut side, _) = openssl::client(&[]);
    side.write(b"hello from the server");
    openssl.wait_for("hello from the server");
    assert!(headers(&side.sent).iter().all(|(_, version, _)| *version == 0x0303), "{:?}", headers(&side.sent));
    let (_openssl, mut side) = openssl::server(&["-rev"]);
    side.write(b"hello\n");
    side.records.close().unwrap();
    side.flush();
    let sent = headers(&side.sent);
    assert!(sent[1..].iter().all(|(_, version, _)| *version == 0x0303), "{sent:?}");
    assert!([0x0301, 0x0303].contains(&sent[0].1), "{sent:?}");
}

/// Section 5.1: legacy_record_version "MUST be ignored for all purposes."
#[test]
fn the_version_of_a_record_is_ignored() {
    if !openssl::is_there() {
        return;
    }
    let (_openssl, mut side, mut forger) = openssl::client(&[]);
    assert_eq!(headers(&side.came)[0].1, 0x0301, "OpenSSL's ClientHello has the old version");
    for version in [0x0301, 0x0304, 0x0000, 0xffff] {
        let record = forger.record_with(DATA, version, b"hello\x17");
        assert_eq!(side.open(&record).unwrap(), Some(b"hello".to_vec()), "{version:#x}");
    }
}

/// Section 5: "An implementation may receive an unencrypted record of type change_cipher_spec consisting of the single
/// byte value 0x01 at any time after the first ClientHello message has been sent or received and before the peer's
/// Finished message has been received and MUST simply drop it without further processing."
#[test]
fn change_cipher_spec_is_dropped_during_the_handshake() {
    if !openssl::is_there() {
        return;
    }
    let has_one = |bytes: &[u8]| headers(bytes).contains(&(CHANGE_CIPHER_SPEC, 0x0303, 1));
    let (_openssl, side, _) = openssl::client(&[]);
    assert!(has_one(&side.came), "OpenSSL's client sends one");
    let (_openssl, mut side) = openssl::server(&["-rev"]);
    assert!(has_one(&side.came), "OpenSSL's server sends one");
    side.write(b"hello\n");
    assert_eq!(side.read(6), b"olleh\n");
    // One more change_cipher_spec.
    let (mut openssl, io) = openssl::connect_client(&[]);
    let mut side = openssl::serve(io, &[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1]).unwrap();
    openssl.write(b"hello\n");
    assert_eq!(side.read(6), b"hello\n");
}

/// Section 5: "An implementation which receives any other change_cipher_spec value or which receives a protected
/// change_cipher_spec record MUST abort the handshake with an "unexpected_message" alert."
#[test]
fn any_other_change_cipher_spec_is_refused() {
    if !openssl::is_there() {
        return;
    }
    for injected in [&[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 2][..], &[CHANGE_CIPHER_SPEC, 3, 3, 0, 2, 1, 1]] {
        let (openssl, io) = openssl::connect_client(&[]);
        assert!(openssl::serve(io, injected).is_err(), "{injected:?}");
        openssl.wait_for("SSL alert number");
    }
    both_refuse(&[&[1, CHANGE_CIPHER_SPEC]], AlertDescription::UnexpectedMessage);
}

/// Section 5: "If an implementation detects a change_cipher_spec record received before the first ClientHello message
/// or after the peer's Finished message, it MUST be treated as an unexpected record type".
#[test]
fn change_cipher_spec_outside_of_the_handshake_is_refused() {
    if !openssl::is_there() {
        return;
    }
    let record = [CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1];
    assert_eq!(alert_for_first_bytes(&record), AlertDescription::UnexpectedMessage);
    assert_eq!(alert_of_openssl_for_first_bytes(&record), AlertDescription::UnexpectedMessage);
    let (openssl, mut side, _) = openssl::client(&[]);
    we_refuse(&openssl, &mut side, &[record.to_vec()], AlertDescription::UnexpectedMessage);
}

/// Section 5.2: "The outer opaque_type field of a TLSCiphertext record is always set to the value 23
/// (application_data)".
#[test]
fn every_encrypted_record_looks_like_data() {
    if !openssl::is_there() {
        return;
    }
    let (mut openssl, mut side, _) = openssl::client(&[]);
    let before = side.sent.len();
    side.records.request_key_update().unwrap();
    side.flush();
    side.write(b"hello, new key");
    openssl.wait_for("hello, new key");
    openssl.write(b"hello\n");
    side.read(6);
    side.records.close().unwrap();
    side.flush();
    let sent = headers(&side.sent[before..]);
    assert!(sent.len() >= 3 && sent.iter().all(|(kind, ..)| *kind == DATA), "{sent:?}");
    for outer in [ALERT, HANDSHAKE, 24] {
        let (openssl, mut side, mut forger) = openssl::client(&[]);
        let record = forger.record_with(outer, 0x0303, b"hello\x17");
        we_refuse(&openssl, &mut side, &[record], AlertDescription::UnexpectedMessage);
    }
}

/// Section 5.2: "The length MUST NOT exceed 2^14 + 256 bytes. An endpoint that receives a record that exceeds this
/// length MUST terminate the connection with a "record_overflow" alert."
#[test]
fn an_encrypted_record_has_at_most_2_14_and_256_bytes() {
    if !openssl::is_there() {
        return;
    }
    let (openssl, mut side, _) = openssl::client(&[]);
    let header = |len: u16| [&[DATA, 3, 3][..], &len.to_be_bytes()].concat();
    assert_eq!(side.records.open(&mut header(0x4100)).unwrap(), None, "the rest may come");
    we_refuse(&openssl, &mut side, &[header(0x4101)], AlertDescription::RecordOverflow);

    let (_openssl, mut side, _) = openssl::client(&[]);
    side.write_inner(&[vec![b'x'; 0x4101 - 17], vec![DATA]].concat());
    assert_eq!(side.read_record().unwrap_err().alert(), AlertDescription::RecordOverflow, "OpenSSL");
}

/// Section 5.2: "If the decryption fails, the receiver MUST terminate the connection with a "bad_record_mac" alert."
#[test]
fn a_record_that_was_changed_is_refused() {
    if !openssl::is_there() {
        return;
    }
    let sealed = b"hello\x17".len();
    for at in [5, 5 + sealed - 1, 5 + sealed, 5 + sealed + 15] {
        let (openssl, mut side, mut forger) = openssl::client(&[]);
        let mut record = forger.record(b"hello\x17");
        record[at] ^= 1;
        we_refuse(&openssl, &mut side, &[record], AlertDescription::BadRecordMac);
    }
    let (_openssl, mut side, _) = openssl::client(&[]);
    let mut record = seal(&mut side.records, ContentType::APPLICATION_DATA, b"hello");
    record[7] ^= 1;
    side.io.write_all(&record).unwrap();
    assert_eq!(side.read_record().unwrap_err().alert(), AlertDescription::BadRecordMac, "OpenSSL");
    // Too short for a tag.
    let (openssl, mut side, _) = openssl::client(&[]);
    we_refuse(&openssl, &mut side, &[vec![DATA, 3, 3, 0, 3, 1, 2, 3]], AlertDescription::BadRecordMac);
}

/// Section 5.2: "additional_data = TLSCiphertext.opaque_type || TLSCiphertext.legacy_record_version ||
/// TLSCiphertext.length".
#[test]
fn the_header_of_a_record_is_authenticated() {
    if !openssl::is_there() {
        return;
    }
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    let mut record = forger.record(b"hello\x17");
    record[2] = 1;
    we_refuse(&openssl, &mut side, &[record], AlertDescription::BadRecordMac);
    // The record lacks one byte, and the length in the header agrees.
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    let mut record = forger.record(b"hello\x17");
    record.pop();
    record[4] -= 1;
    we_refuse(&openssl, &mut side, &[record], AlertDescription::BadRecordMac);
}

/// Section 5.3: the sequence number "is set to zero at the beginning", is "incremented by one after reading or writing
/// each record", and the nonce is the IV XORed with it.
#[test]
fn each_record_has_the_nonce_of_its_sequence_number() {
    if !openssl::is_there() {
        return;
    }
    // The forger derives key and nonces by itself; more than 256 records take two bytes of the number.
    let (_openssl, mut side, mut forger) = openssl::client(&[]);
    for n in 0..600_u32 {
        let inner = [&n.to_be_bytes()[..], &[DATA]].concat();
        assert_eq!(side.open(&forger.record(&inner)).unwrap(), Some(n.to_be_bytes().to_vec()));
    }
    // The same record twice.
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    let record = forger.record(b"hello\x17");
    we_refuse(&openssl, &mut side, &[record.clone(), record], AlertDescription::BadRecordMac);
    // A record is missing.
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    forger.skip();
    we_refuse(&openssl, &mut side, &[forger.record(b"hello\x17")], AlertDescription::BadRecordMac);
    let (_openssl, mut side, _) = openssl::client(&[]);
    seal(&mut side.records, ContentType::APPLICATION_DATA, b"not sent");
    side.write(b"hello");
    assert_eq!(side.read_record().unwrap_err().alert(), AlertDescription::BadRecordMac, "OpenSSL");
}

/// Section 5.3: the sequence number is set to zero "whenever the key is changed; the first record transmitted under a
/// particular traffic key MUST use sequence number 0."
#[test]
fn the_sequence_number_begins_anew_with_each_key() {
    if !openssl::is_there() {
        return;
    }
    let (mut openssl, mut side, _) = openssl::client(&[]);
    for round in 0..3_u32 {
        openssl.write(b"before\n");
        assert_eq!(side.read(7), b"before\n");
        // OpenSSL changes its key and asks for a change of ours.
        openssl.write(b"K\n");
        openssl.wait_until("KEYUPDATE", |text| {
            text.windows(9).filter(|part| part == b"KEYUPDATE").count() > round as usize
        });
        openssl.write(b"after\n");
        assert_eq!(side.read(6), b"after\n");
        assert_eq!(side.records.read_sequence(), 1, "one record came with the new key");
        let text = format!("with the key of round {round}");
        side.write(text.as_bytes());
        openssl.wait_for(&text);
    }
}

/// Section 5.3: "Because the size of sequence numbers is 64-bit, they should not wrap." Section 5.5: "Implementations
/// SHOULD do a key update [...] prior to reaching these limits."
#[test]
fn a_key_is_changed_before_its_limit() {
    if !openssl::is_there() {
        return;
    }
    let (openssl, mut side, _) = openssl::client(&[]);
    side.records.set_max_records(7);
    let data: Vec<u8> = (0..1_000_000_usize).map(|n| b'a' + (n % 23) as u8).collect();
    let before = side.sent.len();
    side.write(&data);
    openssl.wait_until("all data", |text| {
        text.windows(1_000).filter(|part| *part == &data[..1_000]).count() > 0
            && text.iter().filter(|byte| **byte == b'w').count() >= data.iter().filter(|byte| **byte == b'w').count()
    });
    let updates = headers(&side.sent[before..]).iter().filter(|(.., len)| *len == 5 + 17).count();
    let records = data.len().div_ceil(MAX_PLAIN_BYTES);
    assert!(updates >= records / 7, "{updates} updates for {records} records");
}

/// Section 5.4: "All encrypted TLS records can be padded to inflate the size of the TLSCiphertext." and "the full
/// encoded TLSInnerPlaintext" ends with zeros.
#[test]
fn padding_is_removed() {
    if !openssl::is_there() {
        return;
    }
    let (mut openssl, mut side, _) = openssl::client(&["-record_padding", "4096"]);
    openssl.write(b"hello\n");
    assert_eq!(side.read(6), b"hello\n");
    assert!(headers(&side.came).iter().any(|(.., len)| *len > 4_000), "{:?}", headers(&side.came));
    let (_openssl, mut side, mut forger) = openssl::client(&[]);
    for padding in [0, 1, 255, 256, MAX_PLAIN_BYTES - 6] {
        // Zeros of the content stay.
        let inner = [&b"hello\0\x17"[..], &vec![0; padding]].concat();
        assert_eq!(side.open(&forger.record(&inner)).unwrap(), Some(b"hello\0".to_vec()), "{padding}");
    }
    // OpenSSL reads the same.
    let (openssl, mut side, _) = openssl::client(&[]);
    side.write_inner(b"padded by us\x17\0\0\0\0\0\0\0");
    openssl.wait_for("padded by us");
}

/// Section 5.4: "If a receiving implementation does not find a non-zero octet in the cleartext, it MUST terminate the
/// connection with an "unexpected_message" alert."
#[test]
fn a_record_of_zeros_is_refused() {
    if !openssl::is_there() {
        return;
    }
    both_refuse(&[&[0]], AlertDescription::UnexpectedMessage);
    both_refuse(&[&[0; 1_000]], AlertDescription::UnexpectedMessage);
}

/// Section 5.4: "Implementations MUST NOT send Handshake and Alert records that have a zero-length
/// TLSInnerPlaintext.content; if such a message is received, the receiving implementation MUST terminate the connection
/// with an "unexpected_message" alert."
#[test]
fn an_empty_alert_is_refused() {
    if !openssl::is_there() {
        return;
    }
    both_refuse(&[&[ALERT]], AlertDescription::UnexpectedMessage);
    both_refuse(&[&[ALERT, 0, 0]], AlertDescription::UnexpectedMessage);
}

/// Section 5.4: "the full encoded TLSInnerPlaintext MUST NOT exceed 2^14 + 1 octets."
#[test]
fn data_and_padding_have_at_most_2_14_and_1_bytes() {
    if !openssl::is_there() {
        return;
    }
    let inner = |data: usize, padding: usize| [vec![b'x'; data], vec![DATA], vec![0; padding]].concat();
    let (_openssl, mut side, mut forger) = openssl::client(&[]);
    for (data, padding) in [(MAX_PLAIN_BYTES, 0), (MAX_PLAIN_BYTES - 1, 1), (1, MAX_PLAIN_BYTES - 1)] {
        let opened = side.open(&forger.record(&inner(data, padding))).unwrap();
        assert_eq!(opened.map(|opened| opened.len()), Some(data));
    }
    for (data, padding) in [(MAX_PLAIN_BYTES + 1, 0), (MAX_PLAIN_BYTES, 1), (1, MAX_PLAIN_BYTES)] {
        we_refuse_inner(&[&inner(data, padding)], AlertDescription::RecordOverflow);
    }
    assert_eq!(openssl_refuses_inner(&[&inner(MAX_PLAIN_BYTES + 1, 0)]), AlertDescription::RecordOverflow);
    let (openssl, mut side, _) = openssl::client(&[]);
    side.write(&[vec![b'-'; MAX_PLAIN_BYTES - 9], b"the end.\n".to_vec()].concat());
    openssl.wait_for("the end.");
}

/// Section 4.6.3: a receiver of update_requested "MUST send a KeyUpdate of its own"; any other value than 0 or 1 ends
/// the connection with "illegal_parameter".
#[test]
fn key_updates_are_answered_and_malformed_ones_refused() {
    if !openssl::is_there() {
        return;
    }
    both_refuse(&[&[KEY_UPDATE, 0, 0, 1, 2, HANDSHAKE]], AlertDescription::IllegalParameter);
    // The length is wrong.
    let long: &[u8] = &[KEY_UPDATE, 0, 0, 2, 0, 0, HANDSHAKE];
    openssl_refuses_inner(&[long]);
    we_refuse_inner(&[long], AlertDescription::DecodeError);
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    let before = side.sent.len();
    side.open(&forger.record(&[KEY_UPDATE, 0, 0, 1, 1, HANDSHAKE])).unwrap();
    assert_eq!(headers(&side.sent[before..]), [(DATA, 0x0303, 5 + 17)]);
    side.write(b"with the key that was asked for");
    openssl.wait_for("with the key that was asked for");
}

/// Section 6.1: close_notify "notifies the recipient that the sender will not send any more messages on this
/// connection", and user_canceled is no error.
#[test]
fn the_end_is_announced_both_ways() {
    if !openssl::is_there() {
        return;
    }
    let (mut openssl, mut side, _) = openssl::client(&[]);
    openssl.write(b"Q\n");
    assert_eq!(side.read_record().unwrap(), None);
    let (openssl, mut side, mut forger) = openssl::client(&[]);
    side.write(b"the last data");
    side.records.close().unwrap();
    side.flush();
    openssl.wait_for("the last data");
    openssl.wait_for("closed");
    assert_eq!(side.open(&forger.record(&[1, 90, ALERT])).unwrap(), Some(Vec::new()));
    assert_eq!(side.open(&forger.record(&[1, 0, ALERT])).unwrap(), None);
}
