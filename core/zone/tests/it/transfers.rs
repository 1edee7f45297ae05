//! Transfers to secondaries, read and checked by another hand.

use std::sync::Arc;

use hickory_proto::{
    op::Message,
    rr::{
        Name as MessageName, RData, Record as MessageRecord, RecordType, TSigner,
        rdata::tsig::{TSIG, TsigAlgorithm, TsigError, make_tsig_record},
    },
    serialize::binary::{BinEncodable as _, BinEncoder},
};
use sallyport_zone::{
    AnswerKind, Name, Transport, TsigHash, TsigKeys, Verdict, Zone, Zones,
    transfer::{NotifyAnswer, catalog_zone, notify_message, read_notify_answer},
};

use crate::support::{Ask, BEGIN, Lab, describe, signed_zone, zone};

const SECRET: [u8; 32] = [9; 32];

fn signer() -> TSigner {
    let name = MessageName::from_ascii("key.").unwrap();
    TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha256, name, 300).unwrap()
}

/// A signed query for `s.test`.
pub(crate) fn signed_query(rtype: u16) -> Vec<u8> {
    sign(Ask { edns: None, ..Ask::new("s.test", rtype) }.bytes(), BEGIN).0
}

/// Signs a query. Returns it with its MAC.
fn sign(message: Vec<u8>, now: u64) -> (Vec<u8>, Vec<u8>) {
    sign_by(&signer(), message, now)
}

fn sign_by(signer: &TSigner, mut message: Vec<u8>, now: u64) -> (Vec<u8>, Vec<u8>) {
    let stub = TSIG::new(signer.algorithm().clone(), now, 300, Vec::new(), 0x1234, None, Vec::new());
    let mut variables = Vec::new();
    stub.emit_tsig_for_mac(&mut BinEncoder::new(&mut variables), signer.signer_name()).unwrap();
    let mac = signer.sign(&[message.clone(), variables].concat()).unwrap();
    let record = make_tsig_record(signer.signer_name().clone(), stub.set_mac(mac.clone()));
    let mut bytes = Vec::new();
    record.emit(&mut BinEncoder::new(&mut bytes)).unwrap();
    message.extend(bytes);
    message[11] += 1;
    (message, mac)
}

fn lab(zone: Zone) -> Lab {
    let mut lab = Lab::new([zone.with_transfer_keys(vec!["key".parse().unwrap()])]);
    lab.settings.tsig_keys.insert("key".parse().unwrap(), TsigHash::Sha256, &SECRET).unwrap();
    lab.peer.transport = Transport::Tcp;
    lab
}

/// All records of a transfer, whose signatures are checked.
fn transfer(lab: &mut Lab, query: Vec<u8>) -> Vec<MessageRecord> {
    let (query, mut mac) = sign(query, BEGIN);
    let (outcome, _) = lab.send(&query);
    let Verdict::Transfer(mut transfer) = outcome.verdict else { panic!("{outcome:?}") };
    let (mut records, mut out, mut is_first) = (Vec::new(), Vec::new(), true);
    while transfer.next_message(BEGIN, &mut out) {
        let (next, _, times) = signer().verify_message_byte(&out, Some(&mac), is_first).unwrap();
        assert!(times.contains(&BEGIN));
        (mac, is_first) = (next, false);
        records.extend(Message::from_vec(&out).unwrap().answers);
    }
    records
}

fn axfr() -> Vec<u8> {
    Ask { edns: None, ..Ask::new("s.test", 252) }.bytes()
}

fn ixfr(serial: u32) -> Vec<u8> {
    let mut query = Ask { edns: None, ..Ask::new("s.test", 251) }.bytes();
    query[9] = 1;
    query.extend(b"\xc0\x0c\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00");
    query.extend(serial.to_be_bytes());
    query.extend([0; 16]);
    query
}

fn types(records: &[MessageRecord]) -> Vec<RecordType> {
    records.iter().map(MessageRecord::record_type).collect()
}

#[test]
fn a_whole_zone_in_many_messages() {
    let text: String = (0..3_000).map(|n| format!("h{n} A 192.0.2.1\n")).collect();
    let records = transfer(&mut lab(zone("s.test", &text)), axfr());
    assert_eq!(records.len(), 3_000 + 4);
    assert_eq!(records.first(), records.last());
    assert_eq!(records[0].record_type(), RecordType::SOA);
}

#[test]
fn a_signed_zone_has_a_chain_and_signatures() {
    let text = "sub NS ns.sub\nns.sub A 192.0.2.50\na.b.c A 192.0.2.1\n*.wild A 192.0.2.5";
    let records = transfer(&mut lab(signed_zone("s.test", text)), axfr());
    let chain: Vec<String> = records
        .iter()
        .filter(|record| record.record_type() == RecordType::NSEC)
        .map(|record| record.name.to_string())
        .collect();
    assert_eq!(chain, ["s.test.", "a.b.c.s.test.", "ns.s.test.", "sub.s.test.", "*.wild.s.test."]);
    let glue: Vec<_> = records.iter().filter(|record| record.name.to_string() == "ns.sub.s.test.").collect();
    assert_eq!(glue.len(), 1, "glue has no signature");
    let delegation: Vec<MessageRecord> =
        records.iter().filter(|record| record.name.to_string() == "sub.s.test.").cloned().collect();
    assert_eq!(types(&delegation), [RecordType::NS, RecordType::NSEC, RecordType::RRSIG]);
}

#[test]
fn changes_alone() {
    let version = |serial: u32, text: &str| {
        let text = format!("$TTL 300\n@ SOA ns host {serial} 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\n{text}\n");
        Zone::from_master_file("s.test".parse().unwrap(), &text, None).unwrap()
    };
    let first = version(1, "a A 192.0.2.1");
    let second = version(2, "a A 192.0.2.2").with_history_of(&first);
    let third = version(3, "a A 192.0.2.2\nb A 192.0.2.3").with_history_of(&second);
    let mut lab = lab(third);
    let shown = |records: &[MessageRecord]| -> Vec<String> {
        let shown = |record: &MessageRecord| match &record.data {
            RData::SOA(soa) => format!("SOA {}", soa.serial),
            RData::A(address) => format!("{} {}", record.name, address.0),
            other => format!("{other}"),
        };
        records.iter().map(shown).collect()
    };
    assert_eq!(
        shown(&transfer(&mut lab, ixfr(1))),
        [
            "SOA 3",
            "SOA 1",
            "a.s.test. 192.0.2.1",
            "SOA 2",
            "a.s.test. 192.0.2.2",
            "SOA 2",
            "SOA 3",
            "b.s.test. 192.0.2.3",
            "SOA 3"
        ]
    );
    assert_eq!(shown(&transfer(&mut lab, ixfr(2))), ["SOA 3", "SOA 2", "SOA 3", "b.s.test. 192.0.2.3", "SOA 3"]);
    assert_eq!(shown(&transfer(&mut lab, ixfr(3))), ["SOA 3"]);
    assert_eq!(transfer(&mut lab, ixfr(4_000_000_000)).len(), 6, "an unknown version: the whole zone");
}

#[test]
fn transfers_need_a_key_of_the_zone() {
    let mut lab = lab(zone("s.test", ""));
    assert_eq!(lab.send(&axfr()).0.rcode.0, 5, "no signature");
    let mut bad = signed_query(252);
    let at = bad.len() - 10;
    bad[at] ^= 1;
    let (outcome, out) = lab.send(&bad);
    assert_eq!(outcome.rcode.0, 9, "a wrong signature");
    let answer = Message::from_vec(&out).unwrap();
    assert!(answer.signature.unwrap().data.mac.is_empty());
    let (old, mac) = sign(axfr(), BEGIN - 301);
    let (outcome, out) = lab.send(&old);
    assert_eq!(outcome.rcode.0, 9, "an old signature");
    let signature = Message::from_vec(&out).unwrap().signature.unwrap();
    assert_eq!(signature.data.error, Some(TsigError::BadTime));
    assert_eq!((signature.data.time, &signature.data.other[..]), (BEGIN - 301, &BEGIN.to_be_bytes()[2..]));
    assert!(signer().verify_message_byte(&out, Some(&mac), true).is_ok(), "it is signed by the same key");
    // The key is there, for another algorithm.
    let other = TSigner::new(SECRET.to_vec(), TsigAlgorithm::HmacSha512, signer().signer_name().clone(), 300).unwrap();
    let (out_of_place, _) = sign_by(&other, axfr(), BEGIN);
    let answer = Message::from_vec(&lab.send(&out_of_place).1).unwrap();
    assert_eq!(answer.signature.unwrap().data.error, Some(TsigError::BadKey));
    lab.zones = Zones::new([Arc::new(zone("s.test", "").with_transfer_keys(vec!["other".parse().unwrap()]))]).unwrap();
    assert_eq!(lab.send(&signed_query(252)).0.rcode.0, 5, "a key of another zone");
    lab.settings.tsig_keys = TsigKeys::default();
    assert_eq!(lab.send(&signed_query(252)).0.rcode.0, 9, "an unknown key");
}

#[test]
fn answers_to_signed_queries_are_signed() {
    let mut lab = lab(zone("s.test", ""));
    let (query, mac) = sign(Ask { edns: None, ..Ask::new("s.test", 6) }.bytes(), BEGIN);
    for transport in [Transport::Udp, Transport::Tcp] {
        lab.peer.transport = transport;
        let (outcome, out) = lab.send(&query);
        assert_eq!(outcome.kind, AnswerKind::Records);
        assert!(signer().verify_message_byte(&out, Some(&mac), true).is_ok());
    }
    lab.peer.transport = Transport::Udp;
    let (query, _) = sign(ixfr(0), BEGIN);
    let (outcome, out) = lab.send(&query);
    assert_eq!((outcome.rcode.0, Message::from_vec(&out).unwrap().answers.len()), (0, 1), "IXFR over UDP: the SOA");
}

#[test]
fn zones_with_edges_are_not_transferred() {
    let mut lab = lab(zone("s.test", "a ANAME b.example.net."));
    assert_eq!(lab.send(&signed_query(252)).0.rcode.0, 5);
}

#[test]
fn notices_and_their_answers() {
    let zone = zone("s.test", "");
    let apex: Name = "s.test".parse().unwrap();
    let message = notify_message(&zone, 77, None, BEGIN).unwrap();
    let parsed = Message::from_vec(&message).unwrap();
    assert!(describe(&parsed).contains("s.test. 300 IN SOA"));
    let mut answer = message.clone();
    answer[2] |= 0x80;
    assert_eq!(read_notify_answer(&answer, 77, &apex), Some(NotifyAnswer::Accepted));
    assert_eq!(read_notify_answer(&answer, 78, &apex), None);
    assert_eq!(read_notify_answer(&answer, 77, &"other".parse().unwrap()), None);
    assert_eq!(read_notify_answer(&message, 77, &apex), None, "no answer");
    answer[3] = 5;
    assert_eq!(read_notify_answer(&answer, 77, &apex), Some(NotifyAnswer::Refused(5)));
    let mut keys = TsigKeys::default();
    let key: Name = "key".parse().unwrap();
    assert!(notify_message(&zone, 77, Some((&keys, &key)), BEGIN).is_none());
    keys.insert(key.clone(), TsigHash::Sha256, &SECRET).unwrap();
    let signed = notify_message(&zone, 77, Some((&keys, &key)), BEGIN).unwrap();
    assert!(signer().verify_message_byte(&signed, None, true).is_ok());
}

#[test]
fn a_catalog_lists_zones() {
    let members = ["a.test", "b.test"].map(|name| name.parse().unwrap());
    let zone = catalog_zone("catalog.test".parse().unwrap(), 5, &members).unwrap();
    let pointers = zone.records().iter().filter(|record| record.owner.to_string().contains(".zones.")).count();
    assert_eq!((zone.serial(), pointers), (5, 2));
    let mut lab = Lab::new([zone]);
    assert_eq!(lab.text("version.catalog.test", 16), "NoError aa; version.catalog.test. 3600 IN TXT 2");
}
