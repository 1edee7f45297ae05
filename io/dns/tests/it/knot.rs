//! Generated zones, asked of Knot and of us: every answer is the same.

use std::{collections::BTreeSet, fmt::Write as _, fs, process::Command};

use hickory_proto::{
    op::Message,
    rr::{Record as MessageRecord, RecordType as MessageType},
};
use sallyport_zone::{Name, Record, Settings, Zone, record::parse_record};

use crate::support::{Client, Running, free_port, program, serve, wait_for};

const ZONES: u64 = 24;
const RECORDS_TRIED: usize = 90;
/// Labels of names in zones and in queries, the latter with one that no zone has.
const LABELS: [&str; 6] = ["a", "b", "c", "*", "ns", "w"];
const ASKED_LABELS: [&str; 7] = ["a", "b", "c", "*", "ns", "w", "none"];
/// A, NS, CNAME, SOA, MX, TXT, AAAA, SRV, DNAME, DS, RRSIG, NSEC, HTTPS.
const ASKED_TYPES: [u16; 13] = [1, 2, 5, 6, 15, 16, 28, 33, 39, 43, 46, 47, 65];

/// Numbers that are the same in each run (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn owner(&mut self, apex: &str, max_labels: usize) -> String {
        let mut name = String::new();
        for _ in 0..self.below(max_labels + 1) {
            name = format!("{name}{}.", LABELS[self.below(LABELS.len())]);
        }
        format!("{name}{apex}.")
    }

    /// A record as text: owner, type and data.
    fn record(&mut self, apex: &str) -> (String, &'static str, String) {
        let owner = self.owner(apex, 4);
        let target = match self.below(8) {
            0 => "www.elsewhere.net.".to_owned(),
            _ => self.owner(apex, 3),
        };
        let number = self.below(4);
        let (rtype, data) = match self.below(20) {
            0..4 => ("A", format!("192.0.2.{number}")),
            4..6 => ("AAAA", format!("2001:db8::{number}")),
            6..8 => ("TXT", format!("\"text {number}\"")),
            8 => ("MX", format!("10 {target}")),
            9 => ("SRV", format!("1 2 {number} {target}")),
            10..14 => ("CNAME", target),
            14..17 => ("NS", target),
            17 => ("DS", format!("{number} 13 2 {}", "AB".repeat(32))),
            18 => ("DNAME", target),
            _ if number == 0 => ("HTTPS", "1 . alpn=h2".to_owned()),
            _ => ("HTTPS", format!("{number} {target} alpn=h2")),
        };
        (owner, rtype, data)
    }
}

/// A zone with what fits of random records, and its master file.
fn generate(index: u64) -> (Zone, String, String) {
    let (apex, mut numbers) = (format!("zone{index}.test"), Numbers(index));
    let name = Name::from_text(&apex).unwrap();
    let mut text = String::new();
    let mut records: Vec<Record> = Vec::new();
    let mut first = vec![
        (apex.clone() + ".", "SOA", format!("ns.{apex}. host.{apex}. 1 3600 600 86400 60")),
        (apex.clone() + ".", "NS", format!("ns.{apex}.")),
        (format!("ns.{apex}."), "A", "192.0.2.53".to_owned()),
    ];
    if index == 0 {
        // A chain of eight.
        first.extend((1..9).map(|n| (format!("chain{n}.{apex}."), "CNAME", format!("chain{}.{apex}.", n + 1))));
        first.push((format!("chain9.{apex}."), "A", "192.0.2.99".to_owned()));
    }
    let mut zone = None;
    for tried in 0..RECORDS_TRIED {
        let (owner, rtype, data) = first.get(tried).cloned().unwrap_or_else(|| numbers.record(&apex));
        let record = parse_record(&owner.parse().unwrap(), 300, rtype, &data, &name).unwrap();
        let mut more = records.clone();
        more.push(record);
        // The first two make a zone together.
        match Zone::build(name.clone(), more.clone(), None) {
            Ok(built) => zone = Some(built),
            Err(_) if tried == 0 => {}
            Err(_) => continue,
        }
        records = more;
        writeln!(text, "{owner} 300 IN {rtype} {data}").unwrap();
    }
    let zone = zone.unwrap();
    let read = Zone::from_master_file(name, &text, None).unwrap();
    assert_eq!(read.records(), zone.records(), "the master file that Knot reads");
    (zone, text, apex)
}

/// A section without its order.
fn section(records: &[MessageRecord]) -> BTreeSet<String> {
    let text = |record: &MessageRecord| format!("{record}").to_lowercase();
    records.iter().map(text).collect()
}

/// What must be the same.
fn summary(message: &Message) -> String {
    let meta = &message.metadata;
    format!(
        "{:?} aa={} tc={}\nanswer {:#?}\nauthority {:#?}",
        meta.response_code,
        meta.authoritative,
        meta.truncation,
        section(&message.answers),
        section(&message.authorities)
    )
}

/// The addresses of hosts that an answer names.
fn addresses(message: &Message) -> BTreeSet<String> {
    let is_address = |record: &&MessageRecord| matches!(record.record_type(), MessageType::A | MessageType::AAAA);
    message.additionals.iter().filter(is_address).map(|record| format!("{record}").to_lowercase()).collect()
}

/// The addresses of a referral without which nobody finds the name servers: those below the delegation. Knot adds
/// others, by wildcards for example.
fn glue(message: &Message) -> BTreeSet<String> {
    let cut = message.authorities.first().map(|record| record.name.clone()).unwrap_or_default();
    let is_address = |record: &&MessageRecord| matches!(record.record_type(), MessageType::A | MessageType::AAAA);
    let below = message.additionals.iter().filter(is_address).filter(|record| cut.zone_of(&record.name));
    below.map(|record| format!("{record}").to_lowercase()).collect()
}

#[test]
fn every_answer_is_that_of_knot() {
    let Some(knotd) = program("knotd", "knot") else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let path = folder.path().display();
    let mut config = format!(
        "server:\n  rundir: {path}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {path}\n\
         template:\n  - id: default\n    storage: {path}\n    semantic-checks: off\n    journal-content: none\n\
         \x20   zonefile-sync: -1\nzone:\n"
    );
    let (mut zones, mut apexes) = (Vec::new(), Vec::new());
    for index in 0..ZONES {
        let (zone, text, apex) = generate(index);
        fs::write(folder.path().join(format!("{apex}.zone")), text).unwrap();
        writeln!(config, "  - domain: {apex}\n    file: {apex}.zone").unwrap();
        zones.push(zone);
        apexes.push(apex);
    }
    let config_path = folder.path().join("knot.conf");
    fs::write(&config_path, config).unwrap();
    let log = folder.path().join("knot.log");
    let _knot = Running::start(Command::new(knotd).arg("-c").arg(&config_path), &log);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let (_server, address) = serve(zones, Settings::default());
    let mut ours = Client::new(address);
    let mut theirs = Client::new(([127, 0, 0, 1], port).into());
    for apex in &apexes {
        let query = crate::support::query(1, apex, 6, false);
        wait_for("Knot's zones", &log, || theirs.send(&query).is_ok_and(|answer| answer.answers.len() == 1));
    }

    let mut names: Vec<String> = vec![String::new()];
    for depth in 0..3 {
        let longer = names.iter().filter(|name| name.matches('.').count() == depth);
        let longer = longer.flat_map(|name| ASKED_LABELS.iter().map(move |label| format!("{label}.{name}")));
        names.extend(longer.collect::<Vec<_>>());
    }
    names.extend((1..10).map(|n| format!("chain{n}.")));
    let (mut asked, mut differences) = (0, Vec::new());
    for apex in &apexes {
        for name in &names {
            for rtype in ASKED_TYPES {
                let name = format!("{name}{apex}.");
                let (our, their) = (ours.query(&name, rtype, false), theirs.query(&name, rtype, false));
                asked += 1;
                let (our_summary, their_summary) = (summary(&our), summary(&their));
                let is_referral = !our.metadata.authoritative;
                let of = |message| if is_referral { glue(message) } else { addresses(message) };
                if our_summary != their_summary || of(&their) != of(&our) {
                    differences.push(format!(
                        "{name} {rtype}\nours: {our_summary}\n{:?}\nKnot: {their_summary}\n{:?}",
                        of(&our),
                        of(&their)
                    ));
                }
            }
        }
    }
    println!("{asked} answers compared");
    let shown: Vec<&String> = differences.iter().take(5).collect();
    assert!(
        differences.is_empty(),
        "{} of {asked} answers differ:\n{}",
        differences.len(),
        shown.iter().fold(String::new(), |text, one| text + one + "\n\n")
    );
}
