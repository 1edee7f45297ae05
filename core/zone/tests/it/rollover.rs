//! Keys that change places.

use std::sync::Arc;

use sallyport_zone::dnssec::{
    KeyRole, KeyTimes, ZoneKeys, ZoneKeysError, plan_csk_rollover, plan_ksk_rollover, plan_zsk_rollover,
};

use crate::support::{Ask, BEGIN, DNSSEC_OK, Lab, describe, key, zone_with};

const TTL: u32 = 3_600;

/// The tags in the DNSKEY set, and those that signed it and an A record.
fn tags(lab: &mut Lab) -> (usize, Vec<String>, Vec<String>) {
    let keys = describe(&lab.ask(&Ask::new("example.com", 48).edns(DNSSEC_OK)));
    let address = describe(&lab.ask(&Ask::new("ns.example.com", 1).edns(DNSSEC_OK)));
    let signed_by = |text: &str| {
        let signatures = text.split("; ").filter(|part| part.contains(" RRSIG "));
        signatures.map(|part| part.split_whitespace().rev().nth(2).unwrap_or_default().to_owned()).collect()
    };
    (keys.matches(" DNSKEY 25").count(), signed_by(&keys), signed_by(&address))
}

fn lab(keys: ZoneKeys) -> Lab {
    Lab::new([zone_with("example.com", "", Some(Arc::new(keys)))])
}

#[test]
fn a_new_zsk_is_published_before_it_signs() {
    let apex = "example.com".parse().unwrap();
    let plan = plan_zsk_rollover(KeyTimes::from(0), BEGIN + 100, TTL, 300);
    let ksk = key(1, KeyRole::KeySigning, KeyTimes::from(0));
    let (former, successor) = (key(2, KeyRole::ZoneSigning, plan.former), key(3, KeyRole::ZoneSigning, plan.successor));
    let tag = |key: &sallyport_zone::dnssec::SigningKey| key.tag().to_string();
    let (ksk_tag, former_tag, successor_tag) = (tag(&ksk), tag(&former), tag(&successor));
    let mut lab = lab(ZoneKeys::new(apex, vec![ksk, former, successor], TTL, BEGIN).unwrap());
    assert_eq!(tags(&mut lab), (2, vec![ksk_tag.clone()], vec![former_tag.clone()]));
    lab.advance(100);
    assert_eq!(tags(&mut lab), (3, vec![ksk_tag.clone()], vec![former_tag]), "published");
    lab.advance(u64::from(TTL) + 600);
    assert_eq!(tags(&mut lab), (3, vec![ksk_tag.clone()], vec![successor_tag.clone()]), "active");
    lab.advance(300 + 600);
    assert_eq!(tags(&mut lab), (2, vec![ksk_tag], vec![successor_tag]), "the former one is gone");
}

#[test]
fn a_new_ksk_waits_for_its_ds_record() {
    let apex: sallyport_zone::Name = "example.com".parse().unwrap();
    let zsk = || key(2, KeyRole::ZoneSigning, KeyTimes { ds_from: None, ..KeyTimes::from(0) });
    let keys = |seen: Option<u64>| {
        let plan = plan_ksk_rollover(KeyTimes::from(0), BEGIN, seen, 86_400, TTL);
        let pair = [key(1, KeyRole::KeySigning, plan.former), key(3, KeyRole::KeySigning, plan.successor)];
        let [former, successor] = pair;
        ZoneKeys::new(apex.clone(), vec![former, successor, zsk()], TTL, BEGIN).unwrap()
    };
    let waiting = keys(None);
    assert_eq!(waiting.ds_texts(BEGIN).len(), 2, "CDS asks the parent for both");
    let mut lab_waiting = lab(waiting);
    lab_waiting.advance(10 * 86_400);
    assert_eq!(tags(&mut lab_waiting).0, 2, "the new key is not in use");
    let seen = keys(Some(BEGIN + 50));
    let change = 50 + 86_400 + 600;
    let successor = seen.keys()[1].tag().to_string();
    assert_eq!(seen.ds_texts(BEGIN + change + u64::from(TTL) + 600).len(), 1);
    let mut lab_seen = lab(seen);
    lab_seen.advance(change);
    let (count, signed, _) = tags(&mut lab_seen);
    assert_eq!((count, signed), (2, vec![successor]));
}

#[test]
fn both_csks_sign_until_the_parent_has_the_new_one() {
    let apex: sallyport_zone::Name = "example.com".parse().unwrap();
    let plan = plan_csk_rollover(KeyTimes::from(0), BEGIN, Some(BEGIN + 5_000), 3_600, 300);
    let pair = vec![key(1, KeyRole::Combined, plan.former), key(2, KeyRole::Combined, plan.successor)];
    let mut lab = lab(ZoneKeys::new(apex, pair, TTL, BEGIN).unwrap());
    let (count, keys, address) = tags(&mut lab);
    assert_eq!((count, keys.len(), address.len()), (2, 2, 2));
    lab.advance(5_000 + 3_600 + 600);
    let (count, keys, address) = tags(&mut lab);
    assert_eq!((count, keys.len(), address.len()), (1, 1, 1));
}

#[test]
fn a_zone_is_never_without_a_key() {
    let apex = || "example.com".parse().unwrap();
    let ending = KeyTimes { retired: Some(BEGIN + 10), ..KeyTimes::from(0) };
    let error = ZoneKeys::new(apex(), vec![key(1, KeyRole::Combined, ending)], TTL, BEGIN).unwrap_err();
    assert!(matches!(error, ZoneKeysError::Uncovered(..)), "{error}");
    let only_zsk = vec![key(1, KeyRole::ZoneSigning, KeyTimes::from(0))];
    assert!(matches!(ZoneKeys::new(apex(), only_zsk, TTL, BEGIN), Err(ZoneKeysError::Uncovered(..))));
    let twice = vec![key(1, KeyRole::Combined, KeyTimes::from(0)), key(1, KeyRole::Combined, KeyTimes::from(0))];
    assert!(matches!(ZoneKeys::new(apex(), twice, TTL, BEGIN), Err(ZoneKeysError::SameTag(..))));
}
