use super::*;

fn message(flags: u8, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, flags, 0];
    counts.iter().for_each(|count| message.extend(count.to_be_bytes()));
    message.extend(rest);
    message
}

const QUESTION: &[u8] = b"\x03WWW\x07example\x03com\x00\x00\x01\x00\x01";

fn with_options(options: &[u8]) -> Vec<u8> {
    let mut rest = QUESTION.to_vec();
    rest.extend(b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00");
    rest.extend((options.len() as u16).to_be_bytes());
    rest.extend(options);
    message(1, [1, 0, 0, 1], &rest)
}

#[test]
fn a_query_with_edns_is_read() {
    let bytes = with_options(b"\x00\x03\x00\x00\x00\x0a\x00\x0812345678\x00\x08\x00\x07\x00\x01\x18\x00\xc0\x00\x02");
    let query = Query::read(&bytes).unwrap();
    assert_eq!(query.header.id, 0x1234);
    assert!(query.header.is_recursion_desired());
    assert_eq!(query.question.name.as_wire(), b"\x03www\x07example\x03com\x00");
    assert_eq!((query.question.rtype, query.question.class), (RecordType::A, CLASS_IN));
    let edns = query.edns.unwrap();
    assert!(edns.is_dnssec_ok && edns.is_nsid_wanted && !edns.is_compact_ok);
    assert_eq!(edns.udp_bytes, 1_232);
    assert_eq!(edns.cookie.unwrap().client, b"12345678");
    assert_eq!(edns.subnet, Some(ClientSubnet { family: 1, address: [192, 0, 2, 0].into(), prefix: 24 }));
}

#[test]
fn what_is_no_query_gets_no_answer() {
    assert!(matches!(Query::read(b"12345678901"), Err(QueryError::Drop(NoQuery::TooShort))));
    let response = message(0x80, [1, 0, 0, 0], QUESTION);
    assert!(matches!(Query::read(&response), Err(QueryError::Drop(NoQuery::Response))));
    let update = message(5 << 3, [1, 0, 0, 0], QUESTION);
    assert!(matches!(Query::read(&update), Err(QueryError::NotImplemented(..))));
}

#[test]
fn malformed_queries_are_told_apart() {
    let is_malformed = |bytes: &[u8], has_question: bool| match Query::read(bytes) {
        Err(QueryError::Malformed(_, question)) => question.is_some() == has_question,
        _ => false,
    };
    assert!(is_malformed(&message(0, [0, 0, 0, 0], &[]), false), "no question");
    assert!(is_malformed(&message(0, [2, 0, 0, 0], &[QUESTION, QUESTION].concat()), false), "two questions");
    assert!(is_malformed(&message(0, [1, 0, 0, 0], &QUESTION[..20]), false), "half a question");
    assert!(is_malformed(&message(0, [1, 0, 0, 0], b"\xc0\x0c\x00\x01\x00\x01"), false), "a pointer");
    assert!(is_malformed(&message(0, [1, 0, 0, 0], &[QUESTION, b"x"].concat()), true), "bytes at the end");
    assert!(is_malformed(&message(0, [1, 0, 0, 1], QUESTION), true), "a record is missing");
    assert!(is_malformed(&message(0, [1, 0, 0, 65_535], QUESTION), true), "many records are missing");
    let opt = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
    assert!(is_malformed(&message(0, [1, 0, 0, 2], &[QUESTION, opt, opt].concat()), true), "two OPT records");
    assert!(is_malformed(&message(0, [1, 1, 0, 0], &[QUESTION, opt].concat()), true), "OPT in the answer");
}

#[test]
fn malformed_options_are_refused() {
    for options in [
        &b"\x00\x0a\x00\x071234567"[..],
        b"\x00\x0a\x00\x09123456789",
        b"\x00\x0a\x00\x08123",
        b"\x00\x0a\x00",
        // A scope in a query; bits beyond the prefix; a wrong length; an unknown family.
        b"\x00\x08\x00\x07\x00\x01\x18\x18\xc0\x00\x02",
        b"\x00\x08\x00\x07\x00\x01\x17\x00\xc0\x00\x03",
        b"\x00\x08\x00\x08\x00\x01\x18\x00\xc0\x00\x02\x00",
        b"\x00\x08\x00\x07\x00\x09\x18\x00\xc0\x00\x02",
        b"\x00\x08\x00\x09\x00\x01\x28\x00\xc0\x00\x02\x00\x00",
    ] {
        assert!(matches!(Query::read(&with_options(options)), Err(QueryError::Malformed(_, Some(_)))), "{options:?}");
    }
}

#[test]
fn the_serial_of_an_ixfr_query_is_read() {
    let mut rest = b"\x07example\x03com\x00\x00\xfb\x00\x01".to_vec();
    rest.extend(b"\xc0\x0c\x00\x06\x00\x01\x00\x00\x00\x00\x00\x16\x00\x00\x00\x00\x00\x07");
    rest.extend([0; 16]);
    let bytes = message(0, [1, 0, 1, 0], &rest);
    assert_eq!(Query::read(&bytes).unwrap().known_serial, Some(7));
}
